// Looks at the spool and at the state file of its volume, regularly and on a thread of its own, since a look
// at a suspended or failed file system may hang.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/base/ids.h"
#include "twinloft/lmtpd/policy/spool_health.h"
#include "twinloft/lmtpd/policy/user.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

struct SpoolWatchConfig {
  std::string state_file = {};  // of the volume; empty: none
  Duration every = std::chrono::seconds(1);
  SpoolRules rules = {};
};

// Logs each change between two looks.
class SpoolWatch {
 public:
  // look: what the file system shows. in_use: the result was asked for since the last look. tell: what the
  // state file says. Both may block, and may still run after the watch is destroyed.
  struct Eyes {
    std::function<SpoolLook(bool in_use)> look;
    std::function<VolumeTold()> tell;
  };
  // The clock outlives the watch, and every look.
  SpoolWatch(const SpoolWatchConfig& config, Eyes eyes, const Clock& clock);
  // Does not wait for a look that hangs.
  ~SpoolWatch();
  SpoolWatch(const SpoolWatch&) = delete;
  SpoolWatch& operator=(const SpoolWatch&) = delete;

  // By the last look. Before the first look has ended, the spool counts as serving. Thread-safe; does not
  // block.
  SpoolHealth health() const;
  // Why the spool takes no mail for this user now. Users with a next hop need no spool. Likewise thread-safe.
  std::optional<Reply> refusal(const User& user, bool authenticated) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  const SpoolRules rules_;
  const Clock& clock_;
};

// The eyes for a spool. The state file counts only if it is of the spool's volume, or if the spool has no
// marker. Whether the file system has failed is tested only while it is in use: the test starts a
// transaction, so it would wake the disk of an idle machine every few seconds.
SpoolWatch::Eyes eyes_for(std::shared_ptr<Spool> spool, const SpoolConfig& config, std::string state_file);

// A watch with these eyes and the system's clock. Errors: those of Spool::create().
Result<std::unique_ptr<SpoolWatch>> watch_spool(const SpoolConfig& spool, const SpoolWatchConfig& config);

}  // namespace twinloft::lmtpd
