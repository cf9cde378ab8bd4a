// The open batch collects writes until it is sealed. An address is stored once in a batch, with its newest
// content. The content is in the primary's pending index under the batch's serial.
#pragma once

#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/spool-repl/core/block_index.h"
#include "twinloft/spool-repl/format/record.h"

namespace twinloft::repl::core {

struct SealedBatch {
  std::vector<Extent> extents;  // in order of address
  std::vector<Slot> payload;    // one reference each, for the record
};

class OpenBatch {
 public:
  static constexpr std::size_t zero_puts_max = 256;

  bool empty() const { return blocks_.empty() && zeros_.empty(); }
  // Each data block may split a zero extent in two. These limits keep a batch within record_extents_max.
  bool has_room(std::size_t data_blocks, std::size_t zero_puts) const {
    return blocks_.size() + data_blocks <= record_payload_blocks_max &&
           zeros_.size() + zero_puts <= zero_puts_max;
  }
  void note_data(Lba lba) { blocks_.push_back(lba.v); }
  void note_zeros(Lba lba, std::uint64_t blocks) { zeros_.push_back({lba, blocks, 0}); }

  // Returns the final content, and leaves the batch empty.
  SealedBatch seal(const BlockIndex& pending, std::uint64_t serial, Arena& arena);

  Instant opened_at;

 private:
  std::vector<std::uint64_t> blocks_;
  std::vector<BlockIndex::ZeroExtent> zeros_;
};
static_assert(record_payload_blocks_max * 2 + OpenBatch::zero_puts_max <= record_extents_max);

}  // namespace twinloft::repl::core
