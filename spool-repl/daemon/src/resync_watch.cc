#include "resync_watch.h"

#include <fmt/format.h>

namespace twinloft::repl::daemon {

void ResyncWatch::begin() {
  if (timer_ != 0) return;
  timer_ = loop_.after(ResyncMeter::sample_every, [this] {
    timer_ = 0;
    sample();
  });
}

void ResyncWatch::sample() {
  core::VolumeStatus status = status_();
  if (!meter_.sample(status, volume_blocks_, loop_.now())) return;
  begin();
  if (loop_.now() < next_report_) return;
  next_report_ = loop_.now() + report_every;
  for (ReplicaId id : meter_.passed_tenths())
    for (const core::PeerStatus& p : status.peers)
      if (auto r = meter_.of(p, volume_blocks_); r && p.id == id)
        report_(id, fmt::format("resync {} replica {}: {}% of {} MiB", p.sync_target ? "of" : "from", id,
                                r->percent(), r->total_bytes >> 20));
}

}  // namespace twinloft::repl::daemon
