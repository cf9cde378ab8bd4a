// Which mount of a file system this is.
//
// What was renamed and not synced is there as long as the mount lives, and may be missing at the next one. So
// a log says on which mount its entries were written.
#pragma once

#include <cstdint>
#include <string>

#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// A mount differs from every other one in at least one of these.
struct MountInstance {
  Uuid boot_id;                   // /proc/sys/kernel/random/boot_id
  std::uint64_t diskseq = 0;      // counts the devices of this boot (ioctl_blk(2), BLKGETDISKSEQ)
  std::uint64_t sysfs_inode = 0;  // of /sys/fs/TYPE/DEVICE, a directory that each mount gets anew
  bool operator==(const MountInstance&) const = default;
};

// device: st_dev of a file on the file system. sys, proc: where these file systems are mounted, for tests.
// Errors: Errc::unavailable for a file system that the kernel does not show there, so that a remount could
// not be told from the mount before. ext4 and XFS are shown.
Result<MountInstance> find_mount_instance(std::uint64_t device, const std::string& sys = "/sys",
                                          const std::string& proc = "/proc");

}  // namespace twinloft::lmtpd
