// Reads the digests (docs/formats/digest.md) from the disk.
#pragma once

#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

struct ReadDigests {
  DigestTable table;
  std::uint64_t sectors_lost = 0;  // damaged or unreadable; the digests of their blocks are unknown
};

ReadDigests read_digests(ports::BlockFile& journal, const Superblock& superblock);

}  // namespace twinloft::repl::journal
