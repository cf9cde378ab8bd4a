// Takes out of a mounted losing replica the mail that arrived there after the histories parted, into a
// bundle.
//
// The tree is the losing replica's file system, on which mail users may have had a shell: nothing is followed
// out of it, no symbolic link at all, and what is no plain file is not opened. What can not be taken is
// reported by name, and the rest is. docs/formats/salvage.md describes the bundle, docs/spool-repl.md what is
// taken and why.
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

// Whether any block of this open file's content was written after the parting. The descriptor is read-only,
// of a plain file of the tree, and its offset is nobody's: it may be moved. An error says that this file can
// not be judged: it is reported and not taken, and the extraction goes on.
using WrittenAfterParting = std::function<Result<bool>(int fd)>;

struct ExtractOptions {
  // Where a user's Maildir lies below the tree's root, as in layout.h: "%d/%n/Maildir". At least one. A
  // Maildir that fits none of them is reported, not taken.
  std::vector<std::string> layouts;
  std::string bundle;  // directory; made (mode 0700). One that holds a finished bundle, or anything else, is
                       // refused
  Uuid volume;
  Parting parting;
  // A message whose content was written just before the parting may have been acknowledged just after it.
  // What was created in this time before the newest message of before the parting, and renamed after the
  // birth of that message, is taken too, and marked as uncertain.
  std::chrono::seconds window{300};
  // It is renamed, and acknowledged when its directory is durable: that takes a slow disk seconds, and newer
  // messages may be born meanwhile. What was renamed this much before the newest one's birth counts as behind
  // it. More cost little: what the winner has is found by its content.
  std::chrono::seconds slack{30};
  std::uint64_t message_bytes_max = std::uint64_t{1} << 30;  // a larger file is reported, not taken
  bool foreign_owners = false;  // true: take files that belong to another user than their Maildir does
  // Asked when all has been read: what went wrong below the file system, which may have shown less than there
  // is. May be empty.
  std::function<std::optional<Error>()> device_failure;
};

struct ExtractReport {
  std::uint64_t maildirs = 0;            // of users, their folders not counted
  std::uint64_t looked_at = 0;           // messages in new/ and cur/
  std::uint64_t after = 0;               // of these taken because their content dates from after the parting
  std::uint64_t uncertain = 0;           // taken because they may have been on their way at the parting
  std::uint64_t before = 0;              // left: older than the parting
  std::uint64_t links = 0;               // left: other names of what was taken, in the same Maildir
  std::uint64_t in_tmp = 0;              // files in tmp/, left: they were never acknowledged
  std::uint64_t bytes = 0;               // of all that was taken
  std::vector<ExtractProblem> problems;  // not empty: mail may be missing from the bundle
  std::optional<WallTime> first_after;   // when the first message behind the parting was stored, by the
                                         // loser's clock
};

struct ExtractProgress {
  std::uint64_t maildirs_done = 0, maildirs_total = 0;  // 0: still being counted
  std::uint64_t looked_at = 0, taken = 0, bytes = 0;
};

// `root`: the mounted tree's root directory (O_RDONLY or O_PATH). `progress` may be empty. `ops` null: the
// operating system.
//
// The bundle's manifest is written last, after everything is durable: without it `spool-repl salvage deliver`
// refuses the directory, and extract() with the same directory begins anew. Errors are those that leave no
// bundle: a layout that can not be used, no Maildir that fits one, a bundle directory that can not be
// written.
Result<ExtractReport> extract(int root, const ExtractOptions& options,
                              const WrittenAfterParting& written_after_parting,
                              const std::function<void(const ExtractProgress&)>& progress,
                              FileOps* ops = nullptr);

}  // namespace twinloft::repl::salvage
