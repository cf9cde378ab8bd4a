// Addresses to listen at: address, mode and group of a section.
#pragma once

#include <string>

#include "toml_table.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

// Reads the three keys. False: the address is missing or wrong.
bool read_listen_address(const TomlTable& t, ListenSettings& listen);

// Why the kernel refuses the second socket. Empty: it does not. IPv4 and IPv6 are independent.
std::string clash(const ListenSettings& first, const ListenSettings& second);

}  // namespace twinloft::lmtpd
