// TCP addresses as the configuration writes them: "10.0.0.1:7788", "[fd00::1]:7788", "node-b:7788".
#pragma once

#include <sys/socket.h>

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::net {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string text;
  bool is_loopback() const;
};

// Looks the name up, which may block: call it at start only.
Result<Address> resolve(const std::string& text);

}  // namespace twinloft::repl::net
