// The one word that a volume's state comes down to: the first line of `status`, and its exit code.
#pragma once

#include "status_text.h"

namespace twinloft::repl::daemon {

enum class VolumeState {  // the later, the worse
  ok,
  resyncing,   // a replica is being filled, or catches up
  degraded,    // a replica lacks what is acknowledged, and nothing is under way to mend that
  starting,    // not served yet
  no_primary,  // a secondary that is connected to none
  stalled,     // a request, or an operation of the disk, has waited for too long
  suspended,
  split_brain,
  failed,  // the disk, or the block device
};

inline constexpr Duration stalled_after = std::chrono::seconds(5);
// A sync of a slow disk takes its time.
inline constexpr Duration disk_stalled_after = std::chrono::seconds(10);

inline bool is_stalled(const NodeView& v) {
  return v.oldest_wait >= stalled_after || v.oldest_disk_wait >= disk_stalled_after;
}

VolumeState state_of(const NodeView& view);
const char* name_of(VolumeState state);     // in JSON
const char* state_text(VolumeState state);  // for people; empty where all is well

}  // namespace twinloft::repl::daemon
