// Whether a volume is to become primary by itself, without I/O.
#pragma once

#include <algorithm>
#include <atomic>

#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::daemon {

class Roles {
 public:
  enum class Attempt {
    now,    // and ask again after `retry`
    later,  // ask again after `retry`
    never,
  };
  static constexpr Duration retry = std::chrono::milliseconds(500);

  // `wanted`: by configuration. It holds until an administrator, or another primary, says otherwise.
  void begin(bool wanted) { wants_primary_ = wanted; }
  // Again and again until it is granted: the other replicas may not be there yet.
  Attempt attempt(const core::VolumeStatus& status, bool has_arbiter, bool stops) {
    if (!wants_primary_ || stops) return Attempt::never;
    // An arbiter would grant it as soon as the primary that is followed now is lost. When to replace that
    // primary is for an operator or a cluster manager to say: its users may still be reading from it.
    if (has_arbiter && std::ranges::any_of(status.peers, &core::PeerStatus::primary)) {
      stand_down();
      return Attempt::never;
    }
    return status.role == core::Role::secondary ? Attempt::now : Attempt::later;
  }
  void stand_down() {
    wants_primary_ = false;
    stands_down_ = true;
  }
  // A secondary whose disk has failed confirms nothing any more, and its primary's clients wait for that: it
  // ends, and is started again. A primary stays, for what its clients still read. So does one that a command
  // or a stop waits for.
  static bool leaves_failed_disk(const core::VolumeStatus& status, bool awaited) {
    return !awaited && status.role == core::Role::secondary;
  }

  bool wants_primary() const { return wants_primary_; }
  bool stands_down() const { return stands_down_; }  // from any thread

 private:
  bool wants_primary_ = false;
  std::atomic<bool> stands_down_ = false;
};

}  // namespace twinloft::repl::daemon
