// A source in a process of its own (process/lane_process.h). Sources that need connections or foreign
// libraries (a database server, NSS) do not run in the server process, which reads from the network. The
// server process can only look up keys. It has no database password and makes no connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "twinloft/lmtpd/process/lane_process.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

class UserProcess final : public UserSource {
 public:
  using Open = std::function<Result<std::unique_ptr<UserSource>>()>;

  // As LaneProcess::start(). lanes: the number of look-ups at a time. timeout: of each look-up, with its wait
  // for a lane; it bounds sources without a timeout (NSS) and a process that hangs.
  static Result<std::unique_ptr<UserProcess>> start(std::size_t lanes, std::chrono::milliseconds timeout,
                                                    const std::function<Status()>& become, const Open& open);

  FindResult find(const UserKey& key) override;  // errors: also those of LaneProcess::ask()
  int lifeline() const { return process_->lifeline(); }
  Status beat() { return process_->beat(); }  // as LaneProcess::beat()

 private:
  UserProcess(std::unique_ptr<LaneProcess> process, std::chrono::milliseconds timeout)
      : process_(std::move(process)), timeout_(timeout) {}
  std::unique_ptr<LaneProcess> process_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace twinloft::lmtpd
