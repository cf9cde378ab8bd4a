// Which peers are trusted with something: networks, and Unix sockets.
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
  // "192.0.2.0/24", "2001:db8::/32", one address, or "unix": every peer of a Unix socket. Errors name the
  // word; also where bits behind the prefix are set, which is a slip as a rule.
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

// An IPv4 address that came as IPv6 (::ffff:192.0.2.1, through a socket for both) is an IPv4 address.
sockaddr_storage unmapped(const sockaddr_storage& peer);

// Numeric, without its port; "unix" for everything that is neither IPv4 nor IPv6.
std::string address_text(const sockaddr_storage& peer);

}  // namespace twinloft::lmtpd
