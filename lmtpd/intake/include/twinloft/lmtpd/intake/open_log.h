// An intake log that is open for writing.
#pragma once

#include <functional>
#include <memory>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/intake/intake_log.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/mount_instance.h"

namespace twinloft::lmtpd {

// Wraps the files of a log, for tests with failing operations.
using WrapLogFiles = std::function<std::unique_ptr<LogFiles>(LogDirectory&)>;

// A log that this process has emptied and closed. With it, the log is opened again without a look at each
// block.
struct ClosedLog {
  LogPlace place;
  MountInstance mount;
  IntakeLog::Ending ending;  // the mark has the incarnation
};

class OpenLog {
 public:
  // Opens the log below the spool's root and takes its lock. Entries of a process that ended on this mount
  // without settling them are dropped: they were not acknowledged. Errors, in words for the administrator:
  // there is no log, another process has it, it has failed, it was not replayed after a mount, or it is
  // damaged. wrap null: none. closed: by this process before, or null.
  static Result<std::unique_ptr<OpenLog>> open(int root, const MountInstance& mount, const WrapLogFiles& wrap,
                                               const ClosedLog* closed = nullptr);

  IntakeLog& log() { return *log_; }
  const LogPlace& place() const { return directory_.place(); }
  const LogShape shape() const { return directory_.shape(); }
  bool was_scanned() const { return was_scanned_; }
  // After log().retire() has succeeded.
  ClosedLog closed() const { return {directory_.place(), mount_, log_->ending()}; }

 private:
  OpenLog(LogDirectory directory, const MountInstance& mount)
      : directory_(std::move(directory)), mount_(mount) {}

  LogDirectory directory_;
  const MountInstance mount_;
  bool was_scanned_ = false;
  std::unique_ptr<LogFiles> wrapped_;
  std::unique_ptr<IntakeLog> log_;
};

}  // namespace twinloft::lmtpd
