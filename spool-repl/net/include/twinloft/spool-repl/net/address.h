// TCP addresses of the configuration: "10.0.0.1:7788", "[fd00::1]:7788", "[fe80::1%eth0]:7788",
// "node-b:7788".
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::repl::net {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string text;
  bool is_loopback() const;
  bool is_wildcard() const;   // 0.0.0.0, [::]
  bool is_multicast() const;  // or broadcast
  std::uint16_t port() const;
  // Whether both cannot be used for listening: the same port, with the same address or a wildcard of its
  // kind.
  bool overlaps(const Address& other) const;
};

// Checks the form, without a look-up. Errors: Errc::invalid (not a host and port, or a link-local address
// without its interface).
Status check_address(const std::string& text);

// As check_address(), and that it can be the address of another machine.
Status check_peer_address(const std::string& text);

// The address without a look-up; nothing if the host is a name.
std::optional<Address> numeric_address(const std::string& text);

// All present addresses, at least one. Looks names up, which may take minutes, so do not call it on a
// volume's owner thread. Errors: Errc::invalid as above, Errc::unavailable (the name cannot be resolved at
// present).
Result<std::vector<Address>> resolve_all(const std::string& text);
Result<Address> resolve(const std::string& text);  // the first address

}  // namespace twinloft::repl::net
