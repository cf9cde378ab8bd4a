// The way of durability "intake-log": a message is durable once its record is in the intake log, and its name
// appears without a sync.
//
// Whatever the log cannot take goes by "fsync" (data first): a message above the threshold, a message whose
// Maildir may have new directories, and every message while the log is closed, more than half full, has
// failed on this mount, or its checkpoint hangs. So a missing log delays no mail.
//
// A thread opens the log when deliveries come, makes renamed names durable, and closes the log after ten
// seconds without deliveries, so that the spool can be unmounted.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/intake/mount_instance.h"
#include "twinloft/lmtpd/intake/open_log.h"
#include "twinloft/lmtpd/intake/settings.h"
#include "twinloft/lmtpd/spool/durability.h"

namespace twinloft::lmtpd {

// What the tests replace.
struct IntakeEnvironment {
  // Which mount the spool is (mount_instance.h). device: st_dev.
  std::function<Result<MountInstance>(std::uint64_t device)> mount;
  WrapLogFiles files;                         // null: the files themselves
  Duration idle = std::chrono::seconds(10);   // without deliveries, until the log is closed
  Duration retry = std::chrono::seconds(2);   // until another attempt to open
  Duration hangs = std::chrono::seconds(30);  // a checkpoint that takes longer hangs
};
IntakeEnvironment intake_environment();

class Intake final : public Durability {
 public:
  // by_files: the way of all other messages. The references outlive this object.
  Intake(const IntakeSettings& settings, std::unique_ptr<Durability> by_files, FileOps& ops,
         const Clock& clock, DataFirstRule may_write_data_first = data_first_by_kernel(),
         IntakeEnvironment environment = intake_environment());
  // As leave(). Waits for a thread that makes progress, but not for one that hangs.
  ~Intake() override;
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  DurabilityWay way() const override { return DurabilityWay::intake_log; }
  std::unique_ptr<DurableMessage> begin(const SpoolHandle& spool, const MessagePlan& plan) override;

  // Gives the log up, so that another process may use it, and leaves it empty. Later messages go by
  // `by_files`. Does not block.
  void leave();

 private:
  class Keeper;
  const std::unique_ptr<Durability> by_files_;
  FileOps& ops_;
  const std::shared_ptr<Keeper> keeper_;
  std::thread thread_;
};

}  // namespace twinloft::lmtpd
