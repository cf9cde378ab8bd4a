// The durability of a message: which parts of it have to survive a power cut, and by which system calls.
//
// A delivery writes a file that is invisible to readers, gives the file one or several visible names, and
// replies. In between it names the parts that have to be durable: the content, each name, and the new
// directories. Each way has its own system calls and their order. docs/decisions/maildir-durability.md has
// the figures.
#pragma once

#include <memory>
#include <span>
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
};
// "fsync", "fsync-file", "group-sync"
Result<DurabilityWay> parse_durability(std::string_view text);
std::string_view to_string(DurabilityWay way);

// A name that a file was given.
struct NewEntry {
  int directory = -1;  // the directory of the name
  // Directories above it whose own entries are not known to be durable, the nearest first. The entry of the
  // last is in the spool's root.
  std::span<const Fd> above = {};
};

// A message in delivery. For one thread. Every call blocks. Errors have errno in Error::sys, and mean that it
// is unknown which parts survive.
class DurableMessage {
 public:
  virtual ~DurableMessage() = default;
  // `file` is whole, and has no name that readers look at. After success each name that the file gets
  // survives a power cut with the whole content, or does not survive.
  virtual Status content(int file) = 0;
  // `entry` is one of the file's names; all of them have been made before the first call. After success the
  // name, the content and the directories above survive a power cut.
  virtual Status entry(const NewEntry& entry) = 0;
};

// Thread-safe.
class Durability {
 public:
  virtual ~Durability() = default;
  virtual DurabilityWay way() const = 0;
  // `spool` was opened before the message's first write, and outlives what is returned.
  virtual std::unique_ptr<DurableMessage> begin(const SpoolHandle& spool) = 0;
};

// The references outlive it. may_write_data_first: for `fsync` only.
std::unique_ptr<Durability> make_durability(DurabilityWay way, FileOps& ops, SyncGroup& syncs,
                                            DataFirstRule may_write_data_first = data_first_by_kernel());

}  // namespace twinloft::lmtpd
