// The address of the LMTP server: host:port, [v6]:port, or the path of a Unix socket.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::mailbench {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;

  // "unix:PATH" or a text with a slash is a Unix socket. Otherwise HOST:PORT, which is resolved once. Errors:
  // Errc::invalid, or the name cannot be resolved.
  static Result<Endpoint> parse(std::string_view text);
  // The host of HOST:PORT. Empty: a Unix socket.
  static std::string host_of(std::string_view text);
  // Starts a connection. Returns a non-blocking socket, connected or connecting.
  Result<Fd> connect() const;
};

// The errno with which the connection attempt has ended. 0: connected.
int connect_error(int fd);

}  // namespace twinloft::mailbench
