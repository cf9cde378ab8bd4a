// The state of a volume in a word: the first line of `status`, and its exit code.
#pragma once

#include "status_text.h"

namespace twinloft::repl::daemon {

enum class VolumeState {  // the later, the worse
  ok,
  resyncing,   // a replica is being filled, or gets missing records
  degraded,    // a replica lacks acknowledged writes, and is not being filled
  starting,    // not served yet
  no_primary,  // a secondary without a connected primary
  stalled,     // a request, or an operation of the disk, has waited for too long
  suspended,
  split_brain,
  failed,  // the disk, or the block device
};

inline constexpr Duration stalled_after = std::chrono::seconds(5);
// Longer than the sync of a slow disk.
inline constexpr Duration disk_stalled_after = std::chrono::seconds(10);

inline bool is_stalled(const NodeView& v) {
  return v.oldest_wait >= stalled_after || v.oldest_disk_wait >= disk_stalled_after;
}

VolumeState state_of(const NodeView& view);
const char* name_of(VolumeState state);     // in JSON
const char* state_text(VolumeState state);  // as text; empty: no trouble
// The reason of a state in which the volume does not serve, for people; empty: it serves. The text changes
// only with the reason.
std::string reason_of(const NodeView& view);

}  // namespace twinloft::repl::daemon
