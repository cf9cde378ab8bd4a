// Decodes the header of the PROXY protocol, version 2, which names the proxy's client (HAProxy's
// proxy-protocol.txt, section 2.2).
#pragma once

#include <sys/socket.h>

#include <optional>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// TLVs behind the addresses are longer than 200 bytes only if the proxy sends certificates or tickets.
inline constexpr std::size_t proxy_header_bytes_max = 4096;

struct ProxyHeader {
  std::size_t bytes = 0;  // length of the header, at the front of the input
  // nullopt: the proxy's own connection (LOCAL), or not TCP over IPv4 or IPv6.
  std::optional<sockaddr_storage> source;
};

// nullopt: more bytes are needed. Errors: not a PROXY header, another version, too long, a damaged header (by
// its fields, or by its CRC32C if it has one).
Result<std::optional<ProxyHeader>> decode_proxy_header(ByteSpan in);

}  // namespace twinloft::lmtpd
