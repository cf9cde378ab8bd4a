// Reading the digests of docs/formats/digest.md as they are on the disk.
#pragma once

#include <vector>

#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct ReadDigests {
  std::vector<Digest> digests;     // of all blocks; empty where the volume has none
  std::uint64_t sectors_lost = 0;  // damaged or unreadable: nothing is known of their blocks
  std::vector<std::uint64_t> pages_lost;  // that these lie in
};

ReadDigests read_digests(ports::BlockFile& journal, const Superblock& superblock);

}  // namespace twinloft::repl::journal
