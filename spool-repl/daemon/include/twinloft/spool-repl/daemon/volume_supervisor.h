// Keeps a volume served, independent of other volumes: starts it on its own thread, and again after a
// failure. While it is not served, its control socket reports that.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/daemon/link_security.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"

namespace twinloft::repl::daemon {

class StandIn;

inline constexpr Duration first_retry = std::chrono::seconds(5), last_retry = std::chrono::seconds(60);

class VolumeSupervisor {
 public:
  struct Starting {};  // the first start
  struct Serving {};
  struct Failed {
    Error why;
    bool was_served = false;  // since the start of this process
  };
  struct Ended {          // by request
    bool failed = false;  // it had failed before, or could not write everything home
  };
  using State = std::variant<Starting, Serving, Failed, Ended>;

  // `changed` is called on another thread at each change of the state.
  VolumeSupervisor(VolumeSettings settings, ProcessParts process, std::function<void()> changed,
                   Duration late_after = StartHooks{}.late_after);
  ~VolumeSupervisor();  // after the volume has ended
  VolumeSupervisor(const VolumeSupervisor&) = delete;
  VolumeSupervisor& operator=(const VolumeSupervisor&) = delete;

  const std::string& name() const { return name_; }
  State state() const;
  VolumeSettings settings() const;

  void request_stop(bool force);
  // New settings. Some take effect at once, the others at the next start. A volume that is not served is
  // tried again now.
  void reload(VolumeSettings settings, Security security);

 private:
  void run();
  std::optional<Failed> serve_once();
  void set(State state);
  bool ends() const;
  void wait(Duration pause);  // for a stop, or for the next attempt
  void stand_in(const Error& why);
  void stand_in_for_start();
  void make_stand_in(VolumeSettings settings, std::optional<Error> why);
  void attempts(bool now);

  const std::string name_;
  const ProcessParts process_;
  const std::function<void()> changed_;
  const Duration late_after_;
  Fd wake_;  // eventfd: a stop, or another attempt
  mutable std::mutex mutex_;
  VolumeSettings settings_;  // guarded by mutex_, as the members below
  State state_ = Starting{};
  std::shared_ptr<VolumeRunner> runner_;  // while it is served
  std::mutex stand_in_mutex_;
  std::unique_ptr<StandIn> stand_in_;  // guarded by stand_in_mutex_: after a failure or in a long start,
                                       // until the volume has its control socket
  bool has_control_ = false;  // guarded by stand_in_mutex_: the volume has its control socket in this attempt
  bool stands_down_ = false;  // see VolumeRunner
  bool stop_asked_ = false, force_asked_ = false, was_served_ = false, retry_asked_ = false,
       attempting_ = false;
  std::thread thread_;
};

// The keys that differ, and take effect at the volume's next start.
std::vector<std::string> keys_for_a_restart(const VolumeSettings& before, const VolumeSettings& now);

}  // namespace twinloft::repl::daemon
