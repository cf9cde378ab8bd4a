// Reads a bitmap (docs/formats/bitmap.md) from the disk, for recovery and the offline tools.
#pragma once

#include <vector>

#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct ReadBitmap {
  std::vector<std::uint64_t> words;
  std::uint64_t pages_lost = 0;  // damaged or unreadable: all of their bits are set
};

ReadBitmap read_bitmap(ports::BlockFile& journal, const Superblock& superblock, std::uint32_t slot);

}  // namespace twinloft::repl::journal
