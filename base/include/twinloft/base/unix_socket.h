// Unix sockets as files: who is at a path where a server is to listen, and whether a file is still the one
// that was made.
#pragma once

#include <sys/stat.h>

#include <string>

#include "twinloft/base/result.h"

namespace twinloft {

enum class SocketPlace {
  free,   // nothing is there
  stale,  // a socket that nobody listens on any more
};
// Makes and removes nothing. Errors: Errc::unavailable (somebody listens there), Errc::conflict (what is
// there is no socket), Errc::invalid (the path is too long), or why it cannot be looked at.
Result<SocketPlace> look_at_socket_place(const std::string& path);

// The file of a listening socket. By the time the server ends, the path may name another process's socket,
// which stays.
class SocketFile {
 public:
  SocketFile() = default;
  explicit SocketFile(std::string path);  // right after bind()
  void remove() const;

 private:
  std::string path_;
  struct stat made_{};
};

}  // namespace twinloft
