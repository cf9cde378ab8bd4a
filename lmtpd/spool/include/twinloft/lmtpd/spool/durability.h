// The durability of a message: which parts of it have to survive a power cut, and by which system calls.
//
// A delivery writes a file that is invisible to readers, gives the file one or several visible names, and
// replies. In between it names the parts that have to be durable: the content, each name, and the new
// directories. Each way has its own system calls and their order. docs/decisions/maildir-durability.md has
// the figures.
//
// The order for a message: begin(), the writes, content() with all planned names, the names appear, entry()
// for each name. Each planned name ends with entry() or withdraw(), except after an exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/spool/data_first.h"
#include "twinloft/lmtpd/spool/file_ops.h"
#include "twinloft/lmtpd/spool/spool.h"
#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

enum class DurabilityWay {
  fsync,       // the data first, then fsync of the directory, where data_first.h allows it; else fsync_file
  fsync_file,  // fsync of the file, fsync of the directory; the file system's journal groups concurrent ones
  group_sync,  // a syncfs for all files that wait, a syncfs for all directories that wait
  intake_log,  // one write of a log for all messages that wait (lmtpd/intake); what it cannot take: fsync
};
// "fsync", "fsync-file", "group-sync", "intake-log"
Result<DurabilityWay> parse_durability(std::string_view text);
std::string_view to_string(DurabilityWay way);

// What is known of a message before its first write.
struct MessagePlan {
  std::uint64_t bytes_max = 0;   // the file is not larger
  bool new_directories = false;  // directories of a name, or above it, are not known to be durable
};

// A name that the file is to get: `name` in new/ of the folder.
struct PlannedName {
  std::string maildir;  // relative to the spool's root
  std::string folder;   // in the Maildir, such as ".Lists.dev"; "": the inbox
  std::string name;
};

// A whole message, before it has any name in new/. Valid during the call.
struct PlannedMessage {
  std::string_view content;  // all bytes of the file; empty unless keeps_content()
  std::span<const PlannedName> names;
};

// A name that a file was given.
struct NewEntry {
  int directory = -1;  // the directory of the name
  // Directories above it whose own entries are not known to be durable, the nearest first. The entry of the
  // last is in the spool's root.
  std::span<const Fd> above = {};
};

// A message in delivery. For one thread. Every call blocks. Errors have errno in Error::sys, and mean that it
// is unknown which parts survive. An index is a position in PlannedMessage::names.
class DurableMessage {
 public:
  virtual ~DurableMessage() = default;
  // The way that this message takes, after content().
  virtual DurabilityWay way() const = 0;
  // The file may be without any name until content() has ended (O_TMPFILE).
  virtual bool may_be_unnamed() const = 0;
  // The caller keeps the bytes that it writes, and passes them to content().
  virtual bool keeps_content() const = 0;
  // `file` is whole, and has no name that readers look at. After success each planned name that the file gets
  // survives a power cut with the whole content, or does not survive. Called once.
  virtual Status content(int file, const PlannedMessage& planned) = 0;
  // The planned name is in the directory now; all others that will appear are too. After success the name,
  // the content and the directories above survive a power cut.
  virtual Status entry(std::size_t index, const NewEntry& entry) = 0;
  // The planned name does not appear, or was removed again, after content() or entry() with or without
  // success. Called before the reply. After success a power cut does not bring the name back, as far as this
  // way itself would.
  virtual Status withdraw(std::size_t index) = 0;
};

// Thread-safe.
class Durability {
 public:
  virtual ~Durability() = default;
  virtual DurabilityWay way() const = 0;
  // Called before the message's first write. `spool` was opened before, and outlives what is returned.
  virtual std::unique_ptr<DurableMessage> begin(const SpoolHandle& spool, const MessagePlan& plan) = 0;
};

// The references outlive it. may_write_data_first: for `fsync` only. For `intake_log` this is the way of the
// messages that the log cannot take.
std::unique_ptr<Durability> make_durability(DurabilityWay way, FileOps& ops, SyncGroup& syncs,
                                            DataFirstRule may_write_data_first = data_first_by_kernel());

}  // namespace twinloft::lmtpd
