// Extracts the mail that arrived on the losing replica after the split into a bundle.
//
// The tree is the file system of the losing replica, on which mail users may have had a shell. No symbolic
// link is followed, and only plain files are opened. Files that cannot be taken are reported by name, and all
// others are taken. docs/formats/salvage.md describes the bundle, docs/salvage.md the selection and its
// reasons.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/bundle.h"

namespace twinloft::repl::salvage {

// Whether any block of the file's content was written after the split. fd: read-only, of a plain file of
// the tree; its offset may be changed. Errors: the file is reported and not taken, and the extraction
// continues.
using WrittenAfterParting = std::function<Result<bool>(int fd)>;

// The same for a part of the file.
using RangeWrittenAfterParting = std::function<Result<bool>(int fd, std::uint64_t offset,
                                                            std::uint64_t bytes)>;

struct ExtractOptions {
  // The layouts of Maildirs below the tree's root, as in layout.h: "%d/%n/Maildir". At least one. A Maildir
  // without a matching layout is reported, and not taken.
  std::vector<std::string> layouts;
  std::string bundle;  // the directory, which is made (mode 0700). A directory with a complete bundle or
                       // other content is refused
  Uuid volume;
  Parting parting;
  // A message that was written just before the split may have been acknowledged just after it. The reference
  // is the newest message from before the split. A message is also taken, as uncertain, if it was created
  // within this time before the reference, and renamed after the birth of the reference.
  std::chrono::seconds window{300};
  // A message is renamed, and acknowledged once its directory is durable. On a slow disk this takes seconds,
  // in which newer messages may be born. So a rename within this time before the reference's birth counts as
  // later. A larger value costs little, since mail that the winner has is recognised by its content.
  std::chrono::seconds slack{30};
  std::uint64_t message_bytes_max = std::uint64_t{1} << 30;  // a larger file is reported, not taken
  bool foreign_owners = false;  // true: also take files with another owner than their Maildir
  // Null: lmtpd's intake log is not read.
  RangeWrittenAfterParting log_written;
  // Called at the end: an error below the file system, which may have hidden files. May be empty.
  std::function<std::optional<Error>()> device_failure;
};

struct ExtractReport {
  std::uint64_t maildirs = 0;            // of users, without their folders
  std::uint64_t looked_at = 0;           // messages in new/ and cur/
  std::uint64_t after = 0;               // taken: written after the split
  std::uint64_t from_log = 0;            // of these: from lmtpd's intake log, and not in their Maildirs
  std::uint64_t uncertain = 0;           // taken: may have been in flight at the split
  std::uint64_t before = 0;              // left: older than the split
  std::uint64_t links = 0;               // left: other names of taken files in the same Maildir
  std::uint64_t in_tmp = 0;              // left: files in tmp/, which were never acknowledged
  std::uint64_t bytes = 0;               // of all taken files
  std::vector<ExtractProblem> problems;  // not empty: mail may be missing from the bundle
  std::optional<WallTime> first_after;   // when the first message after the split was stored, by the loser's
                                         // clock
};

struct ExtractProgress {
  std::uint64_t maildirs_done = 0, maildirs_total = 0;  // 0: not counted yet
  std::uint64_t looked_at = 0, taken = 0, bytes = 0;
};

// root: the root directory of the mounted tree (O_RDONLY or O_PATH). progress: may be empty. ops: null for
// the operating system.
//
// The manifest is written last, after everything is durable. Without it, `spool-repl salvage deliver` refuses
// the directory, and extract() begins again in it. Errors: no bundle was made. A layout is wrong, no Maildir
// matches a layout, or the bundle cannot be written.
Result<ExtractReport> extract(int root, const ExtractOptions& options,
                              const WrittenAfterParting& written_after_parting,
                              const std::function<void(const ExtractProgress&)>& progress,
                              FileOps* ops = nullptr);

}  // namespace twinloft::repl::salvage
