// Connections for a process that may make none itself: it names one of the configured targets, and gets a connected socket.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "twinloft/lmtpd/connect/target.h"
#include "twinloft/lmtpd/lanes/lane_process.h"

namespace twinloft::lmtpd {

// Thread-safe.
class Connector {
 public:
  virtual ~Connector() = default;
  // As connect_to(), to the target of that index. Blocks.
  virtual Result<Fd> connect(std::size_t target) = 0;
};

// A process (lanes/) that connects to these targets and to nothing else, whoever asks.
class ConnectProcess final : public Connector {
 public:
  // As LaneProcess::start(). At least one target.
  static Result<std::unique_ptr<ConnectProcess>> start(std::vector<ConnectTarget> targets, const std::function<Status()>& become);

  // Ends about when the target's timeout does, also where the process does not answer: Errc::timeout.
  Result<Fd> connect(std::size_t target) override;
  int lifeline() const { return process_->lifeline(); }

 private:
  struct Turn;
  // At once to one target: one that does not answer leaves room for the others.
  static constexpr std::size_t at_once_max = 4;
  ConnectProcess(std::unique_ptr<LaneProcess> process, const std::vector<ConnectTarget>& targets);

  std::unique_ptr<LaneProcess> process_;
  std::vector<std::chrono::milliseconds> timeouts_;  // by target
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::size_t> under_way_;  // likewise
};

}  // namespace twinloft::lmtpd
