// The blocks of a file on its device, from the file system (FIEMAP, linux/fiemap.h).
#pragma once

#include <cstdint>
#include <functional>

#include "twinloft/base/result.h"

struct fiemap_extent;

namespace twinloft::repl::snapshot {

// Whether any of these blocks of the device is wanted. A block has block_size bytes.
using BlocksWanted = std::function<bool(std::uint64_t lba, std::uint64_t blocks)>;

// Whether a block of the extent is wanted. Content whose position is unknown counts as wanted. For content
// within the inode (ext4's inline_data), the block of the inode counts.
bool extent_wanted(const fiemap_extent& extent, const BlocksWanted& wanted);

// Whether a block of the file's content is wanted. False for an empty file. Errors: the file system does not
// support FIEMAP, or it fails.
Result<bool> file_wanted(int fd, const BlocksWanted& wanted);
// The same for a part of the file. offset, bytes: multiples of block_size.
Result<bool> range_wanted(int fd, std::uint64_t offset, std::uint64_t bytes, const BlocksWanted& wanted);

}  // namespace twinloft::repl::snapshot
