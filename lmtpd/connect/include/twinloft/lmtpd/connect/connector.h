// Connections for a process that may make none itself: it names one of the configured targets, and gets a connected socket.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
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

  Result<Fd> connect(std::size_t target) override;
  int lifeline() const { return process_->lifeline(); }

 private:
  explicit ConnectProcess(std::unique_ptr<LaneProcess> process) : process_(std::move(process)) {}
  std::unique_ptr<LaneProcess> process_;
};

}  // namespace twinloft::lmtpd
