// A record message without the payload blocks that are all zero, or repeat an earlier block of the record.
// docs/formats/wire.md has its bytes. It is decoded to a RecordMessage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/format/wire.h"

namespace twinloft::repl {

// Consecutive payload blocks of one kind.
struct PayloadRun {
  enum class Kind : std::uint8_t { content = 0, zeros = 1, repeat = 2 };
  Kind kind = Kind::content;
  std::uint16_t blocks = 0;  // at least 1
  std::uint16_t from = 0;    // repeat: the earlier block that the first one is equal to. Others: 0
  bool operator==(const PayloadRun&) const = default;
};

// The runs of a payload, in order. Empty if each block is content: a RecordMessage is shorter then. blocks:
// each of block_size, at most payload_blocks_max of them.
std::vector<PayloadRun> find_runs(std::span<const std::byte* const> blocks);

// Appends the part before the body's meta. Behind meta follow the blocks of the runs of content.
void encode_short_record_prefix(const Epoch& epoch, std::uint32_t meta_bytes,
                                std::span<const PayloadRun> runs, std::vector<std::byte>& out);
// Errors: Errc::corrupt.
Result<RecordMessage> decode_short_record(ByteSpan payload);

}  // namespace twinloft::repl
