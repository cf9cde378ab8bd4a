// Keeps the state file of a volume (spool-state/), by a thread of its own, since the file may be on a slow
// disk.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-state/spool_state.h"
#include "volume_state.h"

namespace twinloft::repl::daemon {

class StateTeller {
 public:
  // settings.state_file may be empty: nothing is written then. uuid: of the volume. The clock outlives the
  // teller. If the file cannot be written, one warning is logged, the write is tried again every few seconds,
  // and the volume is served.
  StateTeller(const VolumeSettings& settings, std::string uuid, const Clock& clock);
  ~StateTeller();  // removes the file
  StateTeller(const StateTeller&) = delete;
  StateTeller& operator=(const StateTeller&) = delete;

  // Writes the file, unless it says this already. role: "primary", "secondary", or empty if it is unknown.
  // Does not block.
  void tell(VolumeState state, std::string role, std::string reason);

 private:
  static constexpr std::chrono::seconds retry{5};
  void write_all();
  bool write(const spool_state::SpoolState& state);

  const std::string volume_, uuid_;
  const Clock& clock_;
  spool_state::SpoolState told_;  // of the caller's thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<spool_state::SpoolState> unwritten_;  // guarded by mutex_, as the next member
  bool ending_ = false;
  spool_state::StateFile file_;                    // of the thread
  std::optional<spool_state::SpoolState> failed_;  // of the thread: the last write failed, and is tried again
  std::jthread thread_;
};

}  // namespace twinloft::repl::daemon
