// What a volume that is to be stopped does next, without I/O.
//
//   serving -> trying -> draining -> ended
//               ^  \        ^
//          refused  forcing /
//
// Trying: the front ends are asked to go, and a device that is in use refuses. Forcing: they are taken away
// from their users. Draining: what was written becomes durable, and goes to the data area.
#pragma once

#include <string>
#include <variant>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::daemon {

class Stopping {
 public:
  static constexpr Duration drain_time_max = std::chrono::seconds(15);
  static constexpr Duration slow_request = std::chrono::seconds(2);  // a stop says that it waits for it

  enum class Next {
    nothing,
    stop_front_ends,  // answered by front_ends_stopped()
    take_front_ends,  // by force; requests that wait fail first. Answered by front_ends_taken()
    drain,            // flush, then flushed(); turn() from then on
    checkpoint,
    end,
  };

  // A stop is asked for. With force the front ends are asked in good order first all the same: meanwhile the
  // device may have been unmounted. While that is under way, force takes the device away. `failed`: the
  // volume has failed already.
  Next ask(bool force, bool failed);
  Next front_ends_stopped(const Status& stopped, Instant now);
  Next front_ends_taken(Instant now);
  // Once a second: tries again what was refused, which alone sees an unmount in whichever mount namespace it
  // is. `role_changes`: a change of role has the front ends.
  Next try_again(bool role_changes);
  void flushed();  // or there was nothing to flush
  Next turn(const core::VolumeStatus& status, bool settled, Instant now);

  bool is_asked() const { return !std::holds_alternative<Serving>(state_); }
  bool is_draining() const {
    return std::holds_alternative<Draining>(state_) || std::holds_alternative<Ended>(state_);
  }
  bool is_ended() const { return std::holds_alternative<Ended>(state_); }
  // Promotions and most commands have no place. False again after a refusal.
  bool is_under_way() const { return is_asked() && !std::holds_alternative<Refused>(state_); }
  // Of a volume that is failed at the end: force fails it too, and that is no failure of its own.
  bool has_failed_by_itself() const { return failed_before_ || !forced_; }
  // Why a stop that was asked for has not got to draining; empty: nothing holds it up.
  std::string waits_for(const core::VolumeStatus& status, Duration oldest_request) const;

 private:
  struct Serving {};
  struct Trying {
    bool force = false;
    std::string refusal;  // the last one
  };
  struct Refused {
    std::string refusal;
  };
  struct Forcing {};
  struct Draining {
    Instant until;
    bool flushed = false, checkpoint_asked = false;
  };
  struct Ended {};

  Next force();
  Next drain(Instant now);

  std::variant<Serving, Trying, Refused, Forcing, Draining, Ended> state_;
  bool failed_before_ = false, forced_ = false;
};

}  // namespace twinloft::repl::daemon
