// What replay does in Maildirs: finds the messages of a log's entries, and places those that are missing.
//
// It runs before readers do. It overwrites nothing, removes nothing, and makes no Maildir. Two passes, so
// that a run that is killed can be repeated after readers have begun: look() finds out which messages are
// there, and the caller records these; place() adds the missing ones. Not thread-safe. Every call blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/intake/mailbox.h"
#include "twinloft/lmtpd/spool/file_ops.h"

namespace twinloft::lmtpd {

// An entry of the log that was not withdrawn, and whose name may be missing.
struct PlacedEntry {
  std::uint64_t number = 0;
  std::string maildir, folder, name;  // PlannedName
  std::string_view content;
  bool settled = false;  // the mark proves that the name was in new/
};

enum class Fate {
  present,    // in new/ or cur/, with the content of the log
  differs,    // in new/ or cur/, with other content: left as it is; the log's content is in stuck/
  gone,       // settled, and not in the folder: a reader has moved or deleted it
  missing,    // not settled, and not in the folder. Only between look() and place()
  delivered,  // placed now
  stuck,      // could not be placed: in stuck/
  kept,       // could neither be placed nor be kept in stuck/: must stay in the log
};

struct PlacedOutcome {
  Fate fate = Fate::missing;
  std::string why;   // differs, stuck, kept
  std::string file;  // of the copy in stuck/, relative to the spool's root
  int sys = 0;       // of a kept entry: the errno
};

struct PlacingConfig {
  int root = -1;     // of the spool
  int log = -1;      // the log's directory
  Uuid incarnation;  // of the log
  // Whether mail in this folder counts in the file maildirsize. Null: there is no such quota.
  std::function<bool(const std::string& folder)> counts;
};

class Placing {
 public:
  // The entries and `ops` outlive it.
  Placing(PlacingConfig config, std::span<const PlacedEntry> entries, FileOps& ops);

  // Sets the fate of each entry to present, gone or missing. Reads names only.
  void look();
  // Places the missing entries, durably. Errors: the file system failed; the fates of a finished batch stand,
  // and the other entries are still missing. batch_done: after each batch, with its entries durable.
  Status place(const std::function<Status()>& batch_done);
  // Compares the content of present entries.
  void verify();

  const std::vector<PlacedOutcome>& outcomes() const { return outcomes_; }

 private:
  struct Written;
  void each_mailbox(const std::function<void(std::span<const std::size_t>)>& visit);
  void verify(std::size_t index, Mailbox& mailbox);
  Status place_batch(std::span<const std::size_t> batch);
  bool write(std::size_t index, std::vector<Written>& written);
  void appear(Written& written);
  void count(const Written& written);
  void refuse(std::size_t index, const Error& error);
  void keep_copy(std::size_t index, Fate fate, std::string why);

  const PlacingConfig config_;
  const std::span<const PlacedEntry> entries_;
  FileOps& ops_;
  std::vector<std::size_t> order_;  // indices, one Maildir and folder after the other
  std::vector<PlacedOutcome> outcomes_;
};

}  // namespace twinloft::lmtpd
