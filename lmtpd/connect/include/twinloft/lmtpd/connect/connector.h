// Connections for a process that may not connect: it names one of the configured targets, and receives a
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
  // As connect_to(), to the target with this index. Blocks.
  virtual Result<Fd> connect(std::size_t target) = 0;
};

// A process of its own (process/lane_process.h), which connects to these targets alone, at the request of any
// thread.
class ConnectProcess final : public Connector {
 public:
  // As LaneProcess::start(). `targets` is not empty.
  static Result<std::unique_ptr<ConnectProcess>> start(std::vector<ConnectTarget> targets,
                                                       const std::function<Status()>& become);

  // Returns within about the target's timeout. Errors: also Errc::timeout if the process does not answer.
  Result<Fd> connect(std::size_t target) override;
  int lifeline() const { return process_->lifeline(); }
  Status beat() { return process_->beat(); }  // as LaneProcess::beat()

 private:
  // The connections that are being made to one target. Each target has its own lanes, so that a target that
  // does not answer, or whose name is not resolved, does not delay the others.
  static constexpr std::size_t at_once_max = 4;
  ConnectProcess(std::unique_ptr<LaneProcess> process, const std::vector<ConnectTarget>& targets);

  std::unique_ptr<LaneProcess> process_;
  std::vector<std::chrono::milliseconds> timeouts_;  // by target
};

}  // namespace twinloft::lmtpd
