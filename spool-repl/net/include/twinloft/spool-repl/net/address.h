// TCP addresses as the configuration writes them: "10.0.0.1:7788", "[fd00::1]:7788", "[fe80::1%eth0]:7788",
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
  // Whether nobody can listen at both: one address, or all of its kind, with one port.
  bool overlaps(const Address& other) const;
};

// What can be said of it without asking anybody. Errc::invalid: no host and port, or a link-local address
// without its interface.
Status check_address(const std::string& text);

// As check_address(), and whether one other machine can have it.
Status check_peer_address(const std::string& text);

// Without asking anybody; nothing where the host is a name.
std::optional<Address> numeric_address(const std::string& text);

// Every address that it has now, at least one. Looks names up, which may take minutes: never on the thread
// that owns a volume. Errors: Errc::invalid as above, Errc::unavailable where no answer is to be got now.
Result<std::vector<Address>> resolve_all(const std::string& text);
Result<Address> resolve(const std::string& text);  // the first of them

}  // namespace twinloft::repl::net
