// The batch that writes collect in until it is sealed. The newest content of an address within a batch is
// stored once; it lies in the primary's pending image under the batch's serial.
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
  // Each data block may split one zero extent in two; the bounds keep a batch within record_extents_max.
  bool has_room(std::size_t data_blocks, std::size_t zero_puts) const {
    return blocks_.size() + data_blocks <= record_payload_blocks_max &&
           zeros_.size() + zero_puts <= zero_puts_max;
  }
  void note_data(Lba lba) { blocks_.push_back(lba.v); }
  void note_zeros(Lba lba, std::uint64_t blocks) { zeros_.push_back({lba, blocks, 0}); }

  // The batch's final content, and an empty batch again.
  SealedBatch seal(const BlockIndex& pending, std::uint64_t serial, Arena& arena);

  Instant opened_at;

 private:
  std::vector<std::uint64_t> blocks_;
  std::vector<BlockIndex::ZeroExtent> zeros_;
};
static_assert(record_payload_blocks_max * 2 + OpenBatch::zero_puts_max <= record_extents_max);

}  // namespace twinloft::repl::core
