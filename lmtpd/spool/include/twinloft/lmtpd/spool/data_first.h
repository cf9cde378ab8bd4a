// Whether the data of a file may become durable together with its name.
//
// Writeback of a file ends only once the file system has logged the file's extents and size. So a rename
// behind it is in the same or a later transaction: a name that survives a power cut has its whole content.
// One commit, whose flush covers the data, then makes both durable. This holds for ext4 with an internal
// journal, barriers and data=ordered or data=journal, and for XFS with an internal log
// (docs/decisions/maildir-durability.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

// What the kernel says about a mounted file system. Empty: not known.
struct MountFacts {
  std::string type;               // "ext4"
  std::string super_options;      // of /proc/self/mountinfo: "rw,inode64"
  std::string ext4_options;       // /proc/fs/ext4/DEVICE/options, a line each
  bool internal_journal = false;  // ext4: /proc/fs/jbd2 has one in an inode
};

struct DataFirstVerdict {
  bool allowed = false;
  std::string why;  // "ext4, data=ordered", or what is missing
  bool operator==(const DataFirstVerdict&) const = default;
};
DataFirstVerdict judge_data_first(const MountFacts& facts);

// The type and the super options of the file system on this device. mountinfo: the text of
// /proc/self/mountinfo (proc(5)). Without such a line both are empty.
MountFacts find_mount(std::string_view mountinfo, std::uint64_t device);

// Asks the kernel about the file system that is mounted from this device now. device: st_dev.
DataFirstVerdict find_data_first(std::uint64_t device);

// Asks the kernel, and again when a mount has changed. Logs each change of the verdict. Thread-safe.
using DataFirstRule = std::function<bool(const SpoolHandle&)>;
DataFirstRule data_first_by_kernel();

}  // namespace twinloft::lmtpd
