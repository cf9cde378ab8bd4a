// Answers at the control socket of a volume that is not served, in a separate thread: with the error and the
// way to start the volume, or that the start takes time.
#pragma once

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "state_teller.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

class StandIn {
 public:
  // Answers from now on, if possible. Without a reason: the volume is being started.
  StandIn(VolumeSettings settings, std::optional<Error> why);
  ~StandIn();  // removes the socket

  // Takes the error of a later attempt. False: these settings need another stand-in.
  bool take(const VolumeSettings& settings, const Error& why);

  // The answer. Errors: Errc::unavailable (the command needs a served volume).
  Result<std::string> answer(const std::string& command) const;

 private:
  void serve();
  void tell(const std::optional<Error>& why);
  const VolumeSettings settings_;
  mutable std::mutex mutex_;
  std::optional<Error> why_;  // guarded by mutex_
  OsClock clock_;
  StateTeller teller_;
  Fd wake_;  // eventfd: the end
  std::atomic<bool> serving_ = true;
  std::promise<void> ready_;
  std::thread thread_;
};

}  // namespace twinloft::repl::daemon
