// Connections for a process that may make none itself: it names one of the configured targets, and gets a
// connected socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "twinloft/lmtpd/connect/target.h"
#include "twinloft/lmtpd/process/lane_process.h"

namespace twinloft::lmtpd {

// Thread-safe.
class Connector {
 public:
  virtual ~Connector() = default;
  // As connect_to(), to the target of that index. Blocks.
  virtual Result<Fd> connect(std::size_t target) = 0;
};

// A process (lanes/) that connects to these targets only, at the request of any thread.
class ConnectProcess final : public Connector {
 public:
  // As LaneProcess::start(). At least one target.
  static Result<std::unique_ptr<ConnectProcess>> start(std::vector<ConnectTarget> targets,
                                                       const std::function<Status()>& become);

  // Ends about when the target's timeout does, also where the process does not answer: Errc::timeout.
  Result<Fd> connect(std::size_t target) override;
  int lifeline() const { return process_->lifeline(); }
  Status beat() { return process_->beat(); }  // as LaneProcess::beat()

 private:
  // At once to one target, by lanes of its own: one that does not answer, or whose name is not resolved,
  // leaves the others theirs.
  static constexpr std::size_t at_once_max = 4;
  ConnectProcess(std::unique_ptr<LaneProcess> process, const std::vector<ConnectTarget>& targets);

  std::unique_ptr<LaneProcess> process_;
  std::vector<std::chrono::milliseconds> timeouts_;  // by target
};

}  // namespace twinloft::lmtpd
