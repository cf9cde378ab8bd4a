// The progress, speed and remaining time of a volume's resyncs, from samples of the core's status.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::daemon {

struct ResyncProgress {
  std::uint64_t done_bytes = 0, total_bytes = 0;
  std::uint64_t bytes_per_second = 0;  // of the last seconds; 0: unknown, or no progress
  std::optional<std::uint64_t> seconds_left;
  unsigned percent() const {
    return total_bytes == 0 ? 0 : static_cast<unsigned>(done_bytes * 100 / total_bytes);
  }
};

class ResyncMeter {
 public:
  static constexpr Duration sample_every = std::chrono::seconds(1);

  // Call it about every `sample_every`. False: no resync is running.
  bool sample(const core::VolumeStatus& status, std::uint64_t volume_blocks, Instant now);
  // nullopt: no resync with the peer.
  std::optional<ResyncProgress> of(const core::PeerStatus& peer, std::uint64_t volume_blocks) const;
  // The peers whose progress has passed another tenth since the last call that returned them.
  std::vector<ReplicaId> passed_tenths();

 private:
  static constexpr Duration window = std::chrono::seconds(10);
  struct Sample {
    Instant at;
    std::uint64_t done_blocks;
  };
  struct Track {
    std::deque<Sample> samples;  // of the last `window`
    unsigned tenth = 0, told = 0;
  };
  std::map<ReplicaId, Track> tracks_;
};

}  // namespace twinloft::repl::daemon
