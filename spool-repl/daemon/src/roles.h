// Whether a volume is to become primary by itself, without I/O.
#pragma once

#include <algorithm>
#include <atomic>

#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::daemon {

class Roles {
 public:
  enum class Attempt {
    now,    // and again after `retry`
    later,  // again after `retry`
    never,
  };
  static constexpr Duration retry = std::chrono::milliseconds(500);

  // wanted: by configuration, until an administrator or another primary decides otherwise.
  void begin(bool wanted) { wants_primary_ = wanted; }
  // Repeated until it is granted, since the other replicas may not be connected yet.
  Attempt attempt(const core::VolumeStatus& status, bool has_arbiter, bool stops) {
    if (!wants_primary_ || stops) return Attempt::never;
    // An arbiter would grant the promotion once the present primary is lost. An operator or a cluster
    // manager decides when to replace this primary, since its users may still read from it.
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
  // A secondary with a failed disk confirms no writes, and the primary's clients wait. So it ends, and is
  // started again. A primary stays, since its clients may still read, and so does a replica with a waiting
  // command or stop.
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
