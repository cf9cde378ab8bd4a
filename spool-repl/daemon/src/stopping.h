// The next step of a volume that is to be stopped, without I/O.
//
//   serving -> trying -> draining -> ended
//               ^  \        ^
//          refused  forcing /
//
// Trying: the front ends are asked to end, which a device in use refuses. Forcing: they are taken away from
// their users. Draining: all writes become durable, and are written to the data area.
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
  static constexpr Duration slow_request = std::chrono::seconds(2);  // a stop reports a request after this
                                                                     // time

  enum class Next {
    nothing,
    stop_front_ends,  // then front_ends_stopped()
    take_front_ends,  // by force; waiting requests fail first. Then front_ends_taken()
    drain,            // flush, then flushed(), then turn()
    checkpoint,
    end,
  };

  // A stop is requested. Also with force, the front ends are asked to end first, since the device may have
  // been unmounted meanwhile. A second request with force takes the device away. failed: the volume has
  // failed already.
  Next ask(bool force, bool failed);
  Next front_ends_stopped(const Status& stopped, Instant now);
  Next front_ends_taken(Instant now);
  // Call it once a second: tries a refused stop again. Only another attempt detects an unmount in another
  // mount namespace. role_changes: a change of role is using the front ends.
  Next try_again(bool role_changes);
  void flushed();  // or there was nothing to flush
  Next turn(const core::VolumeStatus& status, bool settled, Instant now);

  bool is_asked() const { return !std::holds_alternative<Serving>(state_); }
  bool is_draining() const {
    return std::holds_alternative<Draining>(state_) || std::holds_alternative<Ended>(state_);
  }
  bool is_ended() const { return std::holds_alternative<Ended>(state_); }
  // Promotions and most commands are refused. False again after a refusal.
  bool is_under_way() const { return is_asked() && !std::holds_alternative<Refused>(state_); }
  // Whether a failed volume has failed by itself, and not by force.
  bool has_failed_by_itself() const { return failed_before_ || !forced_; }
  // Why a requested stop has not reached draining. Empty: no hindrance.
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
