// The sockets of this process, by a look at all of its descriptors. libmilter tells of a connection only when
// the MTA has spoken.
#pragma once

#include <dirent.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <set>

#include "twinloft/base/result.h"

namespace twinloft::spool_milter {

// The local name of a socket, and its identity. An accepted socket has the name of its listening socket
// (unix(7)), or its port (tcp(7)), whatever the address.
class SocketName {
 public:
  SocketName() = default;
  static Result<SocketName> of(int socket);
  // False for two sockets without a name, and for one socket with itself.
  bool is_beside(const SocketName& other) const;

 private:
  sockaddr_storage address_{};
  socklen_t size_ = 0;
  ino_t inode_ = 0;
};

// For one thread.
class Descriptors {
 public:
  // Call it before the process loses access to /proc. In a child of this process, it is opened anew.
  Status open();
  std::set<int> listening() const;  // the sockets that listen
  // How many sockets were accepted from the listening socket of this name, and are open. The listening socket
  // itself does not count, also after its shutdown(2). One more if the descriptors cannot be read.
  std::size_t accepted(const SocketName& name) const;

 private:
  // False: not all could be read.
  template <class See>
  bool each(See see) const;

  std::unique_ptr<DIR, int (*)(DIR*)> directory_{nullptr, ::closedir};
};

}  // namespace twinloft::spool_milter
