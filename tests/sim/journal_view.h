// The records in a simulated journal, according to the documents of the formats. Independent of recovery,
// because it judges what recovery must find and refuse.
#pragma once

#include <optional>
#include <vector>

#include "sim_file.h"
#include "twinloft/spool-repl/format/superblock.h"

namespace twinloft::repl::sim {

struct LiveRecord {
  FrameHeader frame;
  Body body;
  std::uint64_t offset = 0;  // byte offset on the journal device
  bool proven = false;       // the superblock or a later record says that it is durable
  std::uint64_t bytes() const { return std::uint64_t{frame.total_blocks} * block_size; }
  std::uint64_t payload_at() const { return std::uint64_t{meta_blocks_for(frame.meta_bytes)} * block_size; }
  // Whether the byte matters. The padding before the payload does not.
  bool counts(std::uint64_t at) const {
    return at < frame_header_bytes + frame.meta_bytes || at >= payload_at();
  }
};

// The valid copy; of two valid copies, the newer one.
std::optional<Superblock> superblock_in(const SimFile& journal);
// From the tail on, in order. The payload of a record at the end may be torn. Such a record is not proven.
std::vector<LiveRecord> records_in(const SimFile& journal);

}  // namespace twinloft::repl::sim
