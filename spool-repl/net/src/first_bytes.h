// Callers of whom it is not known yet whether they speak TLS. A client of TLS speaks first. A replica of a
// release without TLS waits for the called side.
#pragma once

#include <functional>
#include <list>
#include <string>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::net {

class FirstBytes {
 public:
  // Called in a later turn: whether the caller has sent anything.
  using Decided = std::function<void(Fd, bool has_spoken)>;
  FirstBytes(ports::Loop& loop, Duration patience) : loop_(loop), patience_(patience) {}
  ~FirstBytes();
  FirstBytes(const FirstBytes&) = delete;
  FirstBytes& operator=(const FirstBytes&) = delete;

  // With too many callers of a host, or of all, the oldest of the host with the most is closed.
  void wait(Fd caller, const std::string& host, Decided decided);

 private:
  struct Waiting {
    Fd caller;
    std::string host;
    ports::Loop::TimerId timer = 0;
    Decided decided;
  };
  using At = std::list<Waiting>::iterator;
  void end(At at, bool has_spoken);
  void forget(At at);
  std::size_t count(const std::string& host) const;
  void make_room(const std::string& host);

  ports::Loop& loop_;
  Duration patience_;
  std::list<Waiting> waiting_;
};

}  // namespace twinloft::repl::net
