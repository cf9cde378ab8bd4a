#include "ring_reader.h"

#include <vector>

namespace twinloft::repl::journal {

Result<std::optional<RecordAt>> read_record(RingReader& reader, const Superblock& sb, JournalPos pos,
                                            const LogMark& last) {
  std::uint64_t at = pos.v % sb.ring_bytes;
  TL_TRY_ASSIGN(ByteSpan first, reader.read(at, block_size));
  auto frame = decode_frame(first, sb.volume);
  if (!frame || frame->pos != pos || frame->replica != sb.replica) return std::nullopt;
  std::uint64_t bytes = std::uint64_t{frame->total_blocks} * block_size;
  if (at + bytes > sb.ring_bytes) return std::nullopt;
  TL_TRY_ASSIGN(ByteSpan all, reader.read(at, bytes));
  ByteSpan meta = all.subspan(frame_header_bytes, frame->meta_bytes);
  auto body = decode_body_meta(meta, sb.volume, sb.volume_blocks);
  if (!body && body.error().code == Errc::invalid) return std::unexpected(body.error());
  if (!body || body->header.first_lsn != last.lsn + 1 || body->header.prev_hash != last.hash)
    return std::nullopt;
  ByteSpan payload = all.subspan(std::uint64_t{meta_blocks_for(frame->meta_bytes)} * block_size);
  std::vector<const std::byte*> blocks;
  for (std::size_t i = 0; i < payload.size(); i += block_size) blocks.push_back(payload.data() + i);
  if (!verify_payload(*body, blocks)) return std::nullopt;
  return RecordAt{*frame, std::move(*body), meta, payload};
}

}  // namespace twinloft::repl::journal
