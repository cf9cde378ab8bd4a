// Answers at the control socket of a volume that is not served, on a thread of its own: what is wrong and
// what starts it again, or that its start takes its time.
#pragma once

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

class StandIn {
 public:
  // It answers from now on, if it can. Without a reason: the volume is being started.
  StandIn(VolumeSettings settings, std::optional<Error> why);
  ~StandIn();  // the socket is gone by then

  // A later attempt has failed. False: it cannot speak for these settings, and another one is needed.
  bool take(const VolumeSettings& settings, const Error& why);

  // What it answers. Errc::unavailable to what only a volume that is served could do.
  Result<std::string> answer(const std::string& command) const;

 private:
  void serve();
  const VolumeSettings settings_;
  mutable std::mutex mutex_;
  std::optional<Error> why_;  // guarded by mutex_
  Fd wake_;                   // eventfd: the end
  std::atomic<bool> serving_ = true;
  std::promise<void> ready_;
  std::thread thread_;
};

}  // namespace twinloft::repl::daemon
