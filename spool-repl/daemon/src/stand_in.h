// Answers at the control socket of a volume that is not served: what is wrong, and what starts it again.
#pragma once

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

class StandIn {
 public:
  StandIn(VolumeSettings settings, Error why);
  // Returns after `pause`, or once `wake` is readable.
  void serve(int wake, Duration pause) const;

  // What it answers. Errc::unavailable to what only a volume that is served could do.
  Result<std::string> answer(const std::string& command) const;

 private:
  bool serve_control(int wake, Duration pause) const;
  const VolumeSettings settings_;
  const Error why_;
};

}  // namespace twinloft::repl::daemon
