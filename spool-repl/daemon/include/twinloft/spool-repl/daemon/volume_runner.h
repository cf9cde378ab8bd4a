// One volume of a running node: its files, core, links, front ends and control socket, on one thread of its
// own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/daemon/config.h"

namespace twinloft::repl::daemon {

struct StartHooks {
  std::function<void()> before_control{};  // on another thread, when everything but the control socket is
                                           // there
  std::function<void()> late{};            // by start(), where it takes longer than `late_after`
  Duration late_after = std::chrono::seconds(10);
};

class VolumeRunner {
 public:
  explicit VolumeRunner(VolumeSettings settings, StartHooks hooks = {});
  ~VolumeRunner();
  VolumeRunner(const VolumeRunner&) = delete;
  VolumeRunner& operator=(const VolumeRunner&) = delete;

  // Recovers, opens links and front ends, and returns when the volume is served. Nothing is left behind on
  // error.
  Status start();
  // Asks the volume to stop: front ends first, then everything written is made durable and brought home. With
  // `force` a device that is still in use is taken away from its users. May be called from any thread,
  // repeatedly.
  void request_stop(bool force);
  void wait();
  // After wait(): it ended by itself, and why.
  bool failed() const;
  std::string failure() const;
  // It was demoted, or another replica was promoted: whatever the configuration says, it is secondary when it
  // is started again.
  bool stands_down() const;
  // While it is served: where the peers are, and what proves them, from their next connection on. From any
  // thread.
  void reload(std::map<ReplicaId, std::string> addresses, std::string secret);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct CreateOptions {
  bool adopt = false;  // what the data area holds is the volume's content from now on; otherwise it is zeroed
  bool overwrite = false;  // whatever is recognised on a block device may be destroyed
};

// The `create` command: makes journal and data area as configured. Returns what to tell the user. Errors:
// conflict (a place holds something), unavailable (a device is in use): nothing was changed.
Result<std::string> create_volume(const VolumeSettings& settings, const CreateOptions& options = {});

}  // namespace twinloft::repl::daemon
