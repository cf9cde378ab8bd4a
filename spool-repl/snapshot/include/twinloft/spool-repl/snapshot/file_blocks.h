// Where a file's content lies on its device, asked of the file system (FIEMAP).
#pragma once

#include <cstdint>
#include <functional>

#include "twinloft/base/result.h"

struct fiemap_extent;

namespace twinloft::repl::snapshot {

// Whether any of these blocks (of block_size bytes, of the device) is one that is looked for.
using BlocksWanted = std::function<bool(std::uint64_t lba, std::uint64_t blocks)>;

// Content of which nobody can say where it lies counts as wanted. Content within the inode (ext4's
// inline_data) is judged by the block of the inode.
bool extent_wanted(const fiemap_extent& extent, const BlocksWanted& wanted);

// Whether any block of the file's content is wanted; false for a file without any. Errors: the file system
// does not tell.
Result<bool> file_wanted(int fd, const BlocksWanted& wanted);

}  // namespace twinloft::repl::snapshot
