// Sets of trusted clients: networks, and Unix sockets.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

class Networks {
 public:
  // words: "192.0.2.0/24", "2001:db8::/32", an address, or "unix" for every client of a Unix socket. Errors:
  // with the wrong word; also if bits after the prefix are set, which is usually a mistake.
  static Result<Networks> parse(std::span<const std::string> words);
  bool contains(const sockaddr_storage& peer) const;
  bool empty() const { return networks_.empty() && !unix_; }

 private:
  struct Network {
    int family;
    std::array<std::uint8_t, 16> address;  // the first 4 of IPv4
    unsigned prefix;                       // bits
  };
  Status add(const std::string& word);
  static void unmap(Network& network, unsigned& bits);  // as unmapped(), below

  std::vector<Network> networks_;
  bool unix_ = false;
};

// Converts an IPv4 address in IPv6 form (::ffff:192.0.2.1, by a socket for both) to IPv4.
sockaddr_storage unmapped(const sockaddr_storage& peer);

// The numeric address without its port; "unix" if it is neither IPv4 nor IPv6.
std::string address_text(const sockaddr_storage& peer);

}  // namespace twinloft::lmtpd
