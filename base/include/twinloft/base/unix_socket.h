// The files of Unix sockets: whether a server may listen at a path, and how it removes its own file.
#pragma once

#include <sys/stat.h>

#include <string>

#include "twinloft/base/result.h"

namespace twinloft {

enum class SocketPlace {
  free,   // no file has this path
  stale,  // a socket at which no process listens any more
};
// Looks at the path, and creates and removes no file. Errors: Errc::unavailable (a process listens there),
// Errc::conflict (the file is not a socket), Errc::invalid (the path is too long), or those of lstat(2).
Result<SocketPlace> look_at_socket_place(const std::string& path);

// The file of a listening socket. remove() leaves the file alone if another process's socket has replaced it.
class SocketFile {
 public:
  SocketFile() = default;
  explicit SocketFile(std::string path);  // call it right after bind()
  void remove() const;

 private:
  std::string path_;
  struct stat made_{};
};

}  // namespace twinloft
