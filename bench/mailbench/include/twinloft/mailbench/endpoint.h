// Where the LMTP server is: host:port, [v6]:port, or the path of a Unix socket.
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

  // "unix:PATH", or a text with a slash, is a Unix socket; else HOST:PORT, looked up once.
  static Result<Endpoint> parse(std::string_view text);
  // A non-blocking socket whose connection is under way or there already.
  Result<Fd> connect() const;
};

// 0, or the errno that the connection attempt ended with.
int connect_error(int fd);

}  // namespace twinloft::mailbench
