// A server that lmtpd connects to.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct ConnectTarget {
  std::string text;  // as written, for messages
  std::string host;  // a name, or a numeric address without brackets; empty for a Unix socket
  std::uint16_t port = 0;
  std::string unix_path;                      // absolute; empty for TCP
  std::chrono::milliseconds timeout{10'000};  // for resolving the name and trying all its addresses
};

// "10.0.0.1:2400", "[2001:db8::1]:24", "store1.example.org:24" or "unix:/run/store/lmtp.sock". Errors:
// Errc::invalid with the form that was expected.
Result<ConnectTarget> parse_connect_target(std::string_view text);

// Returns a connected stream socket, non-blocking and close-on-exec. The addresses of a name are tried in the
// order of getaddrinfo(3). Blocks. Errors: Errc::timeout, or the error of the last address.
Result<Fd> connect_to(const ConnectTarget& target);

}  // namespace twinloft::lmtpd
