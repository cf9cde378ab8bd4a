// Replays the intake log: after it, every accepted message of the log is in its Maildir, or in stuck/, or was
// moved or deleted by a reader, and the log is empty.
//
// On a fresh mount of the spool it runs before readers do. On the mount on which the log was written, readers
// are at work and nothing was lost. Then what is not settled is dropped, since its client got no 250.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/mount_instance.h"
#include "twinloft/lmtpd/intake/placing.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

struct ReplayConfig {
  int root = -1;       // of the spool
  MountInstance here;  // of the spool's file system
  // As PlacingConfig::counts.
  std::function<bool(const std::string& folder)> counts;
  LogFiles* files = nullptr;  // what changes the log's files: for tests with failures. null: the log itself
};

// An entry that an administrator should look at.
struct ReplayNote {
  std::uint64_t number = 0;
  std::string maildir, folder, name;
  PlacedOutcome outcome;  // differs, stuck or kept
};

struct ReplayReport {
  bool same_mount = false;
  // Entries of the log that were not retired, by what became of them.
  std::uint64_t entries = 0, withdrawn = 0, dropped = 0, present = 0, gone = 0, delivered = 0;
  std::vector<ReplayNote> notes;
  std::string damage;                 // of the log, if a part of it cannot be read; nothing is retired then
  bool retired = false;               // the log is empty now
  std::uint64_t of(Fate fate) const;  // notes with this fate
};

// The lock must be held. Errors: Errc::corrupt or Errc::not_found: the log is refused, with the reason;
// nothing was changed. Errc::unavailable: the log failed on this mount, and only a fresh mount may replay it.
// Others: the file system failed; the log keeps what was not placed.
Result<ReplayReport> replay_log(LogDirectory& log, const ReplayConfig& config, FileOps& ops);

// What a log holds, without a change of it.
struct LogContent {
  std::uint64_t entries = 0;    // not retired
  std::uint64_t unsettled = 0;  // of these, not proven to be in their Maildirs by the mark
  std::uint64_t bytes = 0;      // in use
  bool of_this_mount = false;   // also if the log is empty
  std::optional<std::string> failure;
};
// Errors: the log is refused, as of replay_log().
Result<LogContent> look_into_log(const LogDirectory& log, const MountInstance& here);

}  // namespace twinloft::lmtpd
