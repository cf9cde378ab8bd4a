// Samples running resyncs of a volume, and reports their progress: each tenth, at most every ten seconds.
#pragma once

#include <functional>
#include <string>

#include "resync_meter.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::daemon {

class ResyncWatch {
 public:
  using Status = std::function<core::VolumeStatus()>;
  using Report = std::function<void(ReplicaId peer, std::string text)>;
  ResyncWatch(ports::Loop& loop, std::uint64_t volume_blocks, Status status, Report report)
      : loop_(loop), volume_blocks_(volume_blocks), status_(std::move(status)), report_(std::move(report)) {}

  // Call it when a resync may have begun. Samples until no resync is running.
  void begin();
  const ResyncMeter& meter() const { return meter_; }

 private:
  static constexpr Duration report_every = std::chrono::seconds(10);
  void sample();

  ports::Loop& loop_;
  std::uint64_t volume_blocks_;
  Status status_;
  Report report_;
  ResyncMeter meter_;
  ports::Loop::TimerId timer_ = 0;  // 0: no resync was running at the last sample
  Instant next_report_;
};

}  // namespace twinloft::repl::daemon
