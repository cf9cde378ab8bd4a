// Where a group of the intake log is, and on which mount it was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"

namespace twinloft::intake_log {

inline constexpr std::size_t block_bytes = 4096;  // the alignment of a group's position and size
inline constexpr std::uint32_t segments_max = 100;
inline constexpr std::uint64_t segment_bytes_max = std::uint64_t{1} << 30;

// The files of a log: all of one size, used one after the other as a ring.
struct LogShape {
  std::uint64_t segment_bytes = 0;  // a multiple of block_bytes
  std::uint32_t segments = 0;
  std::uint64_t bytes() const { return segment_bytes * segments; }
  bool operator==(const LogShape&) const = default;
};
// Errors: Errc::invalid, with the number that is wrong.
Status check_shape(const LogShape& shape);

struct Position {
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;  // in the segment, in bytes
  auto operator<=>(const Position&) const = default;
};
std::string to_text(Position at);  // "segment-01 at 8192", for messages

// Which mount of a file system this is. A mount differs from every other one in at least one member.
struct MountInstance {
  Uuid boot_id;                   // /proc/sys/kernel/random/boot_id
  std::uint64_t diskseq = 0;      // counts the devices of this boot (ioctl_blk(2), BLKGETDISKSEQ)
  std::uint64_t sysfs_inode = 0;  // of /sys/fs/TYPE/DEVICE, a directory that each mount gets anew
  bool operator==(const MountInstance&) const = default;
};

}  // namespace twinloft::intake_log
