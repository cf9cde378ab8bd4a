// The PROXY protocol, version 2, as a server reads it: who the proxy's client is (HAProxy's
// proxy-protocol.txt, section 2.2).
#pragma once

#include <sys/socket.h>

#include <optional>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// What a proxy may add to the addresses (TLVs) is longer than 200 bytes only where it sends certificates or
// tickets.
inline constexpr std::size_t proxy_header_bytes_max = 4096;

struct ProxyHeader {
  std::size_t bytes = 0;                   // of the header, which was at the input's front
  std::optional<sockaddr_storage> source;  // none: the proxy's own connection (LOCAL), or an address family
                                           // that says nothing
};

// nullopt: more bytes are needed. Errors: no such header, another version, one that is too long, damaged (its
// CRC32C, where it has one).
Result<std::optional<ProxyHeader>> decode_proxy_header(ByteSpan in);

}  // namespace twinloft::lmtpd
