// A source in a process of its own: what needs connections, or somebody else's libraries (a database server, NSS), is no part of the process that
// reads from the network. That one can ask for keys, and nothing else; it has no password and makes no connection.
//
// Each look-up under way has a lane: a pair of sockets, and a thread at the other end.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

class UserProcess final : public UserSource {
 public:
  using Open = std::function<Result<std::unique_ptr<UserSource>>()>;

  // Forks: to be called while there is one thread. In the new process `become` is called, which may read secrets first and gives up what it does not need
  // afterwards, then `open`. Errors of both are those of start().
  static Result<std::unique_ptr<UserProcess>> start(std::size_t lanes, const std::function<Status()>& become, const Open& open);
  ~UserProcess() override;

  FindResult find(const UserKey& key) override;
  int lifeline() const { return alive_.get(); }  // poll(2) says POLLHUP once the process is gone

 private:
  UserProcess() = default;
  Result<Fd> take_lane();
  struct Lane;
  static Result<FindResult> ask(int lane, const std::vector<std::byte>& request);

  pid_t pid_ = -1;
  std::mutex mutex_;
  std::condition_variable free_;
  std::vector<Fd> lanes_;       // that are free
  std::size_t lanes_left_ = 0;  // free or in use
  Fd alive_;
};

}  // namespace twinloft::lmtpd
