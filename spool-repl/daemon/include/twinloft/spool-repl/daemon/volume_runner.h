// A volume of a running node: its files, core, links, front ends and control socket, on its own thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/daemon/link_security.h"
#include "twinloft/spool-repl/stream/memory_pool.h"

namespace twinloft::repl::daemon {

struct StartHooks {
  std::function<void()> before_control{};  // on another thread, when only the control socket is missing
  std::function<void()> late{};            // by start(), if it takes longer than `late_after`
  Duration late_after = std::chrono::seconds(10);
};

// What all volumes of a process share.
struct ProcessParts {
  std::shared_ptr<stream::WorkPool> pool = {};              // null: nothing is compressed
  std::shared_ptr<stream::SharedBandwidth> bandwidth = {};  // of all links; null: no limit
  std::shared_ptr<stream::MemoryPool> memory = {};  // of all links; null: the windows alone are limits
};

class VolumeRunner {
 public:
  explicit VolumeRunner(VolumeSettings settings, ProcessParts process = {}, StartHooks hooks = {});
  ~VolumeRunner();
  VolumeRunner(const VolumeRunner&) = delete;
  VolumeRunner& operator=(const VolumeRunner&) = delete;

  // Recovers, opens links and front ends, and returns when the volume is served. After an error, nothing is
  // left.
  Status start();
  // Requests the stop: front ends first, then all writes become durable, and are written home. force: a
  // device that is in use is taken away from its users. May be called from any thread, and repeatedly.
  void request_stop(bool force);
  void wait();
  // After wait(): whether it has ended by itself, and the reason.
  bool failed() const;
  std::string failure() const;
  // The volume was demoted, or another replica was promoted. At its next start, the volume is secondary, also
  // with `role = "primary"`.
  bool stands_down() const;
  // Changes the addresses of the peers and the secret for their next connections. Changes their
  // compression and bandwidth, and read_balancing, at once. From any thread, while the volume is served.
  void reload(const VolumeSettings& now, Security security);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct CreateOptions {
  bool adopt = false;  // the content of the data area becomes the volume's content; otherwise it is zeroed
  bool overwrite = false;  // recognised content of a block device may be destroyed
};

// The command `create`: makes journal and data area as configured. Returns the text for the administrator.
// Errors: Errc::conflict (a file or device has content), Errc::unavailable (a device is in use). Nothing was
// changed then.
Result<std::string> create_volume(const VolumeSettings& settings, const CreateOptions& options = {});

}  // namespace twinloft::repl::daemon
