// A source in a process of its own (lanes/): what needs connections, or somebody else's libraries (a database
// server, NSS), is no part of the process that reads from the network. The server process can ask for keys,
// and nothing else; it has no password and makes no connection.
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

  // As LaneProcess::start(); `lanes`: look-ups at once; `timeout`: of each, its wait for a lane included.
  // Sources have their own; this one is for what has none (NSS), and for a process that hangs.
  static Result<std::unique_ptr<UserProcess>> start(std::size_t lanes, std::chrono::milliseconds timeout,
                                                    const std::function<Status()>& become, const Open& open);

  FindResult find(const UserKey& key) override;  // Errc::timeout, Errc::unavailable: as LaneProcess::ask()
  int lifeline() const { return process_->lifeline(); }
  Status beat() { return process_->beat(); }  // as LaneProcess::beat()

 private:
  UserProcess(std::unique_ptr<LaneProcess> process, std::chrono::milliseconds timeout)
      : process_(std::move(process)), timeout_(timeout) {}
  std::unique_ptr<LaneProcess> process_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace twinloft::lmtpd
