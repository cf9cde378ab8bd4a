// The records in a simulated journal, as the formats' documents say that they lie there. Recovery has no part
// in it: what it must find, and what it must refuse, is not for it to say.
#pragma once

#include <optional>
#include <vector>

#include "sim_file.h"
#include "twinloft/spool-repl/format/superblock.h"

namespace twinloft::repl::sim {

struct LiveRecord {
  FrameHeader frame;
  Body body;
  std::uint64_t offset = 0;  // bytes, on the journal device
  bool proven = false;       // the superblock, or a record behind it, says that it was durable
  std::uint64_t bytes() const { return std::uint64_t{frame.total_blocks} * block_size; }
  std::uint64_t payload_at() const { return std::uint64_t{meta_blocks_for(frame.meta_bytes)} * block_size; }
  // Whether a byte of it counts: the rest of the last block before the payload does not.
  bool counts(std::uint64_t at) const {
    return at < frame_header_bytes + frame.meta_bytes || at >= payload_at();
  }
};

// The copy that counts: of those that are whole, the newer one.
std::optional<Superblock> superblock_in(const SimFile& journal);
// From the tail on, in order. Of a record at the end the payload may be torn; it is not proven then.
std::vector<LiveRecord> records_in(const SimFile& journal);

}  // namespace twinloft::repl::sim
