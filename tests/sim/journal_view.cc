#include "journal_view.h"

namespace twinloft::repl::sim {

namespace {

// The bytes on the disk, unreadable ones too.
std::vector<std::byte> bytes_at(const SimFile& journal, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::uint64_t at = 0; at < bytes; at += block_size)
    journal.page((offset + at) / block_size).read(out.data() + at);
  return out;
}

std::optional<LiveRecord> record_at(const SimFile& journal, const Superblock& sb, std::uint64_t pos,
                                    const LogMark& before) {
  std::uint64_t offset = sb.ring_offset + pos % sb.ring_bytes, room = sb.ring_bytes - pos % sb.ring_bytes;
  auto frame = decode_frame({journal.page(offset / block_size).bytes(), block_size}, sb.volume);
  if (!frame || frame->pos.v != pos || frame->replica != sb.replica) return std::nullopt;
  std::uint64_t meta = std::uint64_t{meta_blocks_for(frame->meta_bytes)} * block_size;
  if (meta > room) return std::nullopt;
  std::vector<std::byte> bytes = bytes_at(journal, offset, meta);
  auto body = decode_body_meta(ByteSpan(bytes).subspan(frame_header_bytes, frame->meta_bytes), sb.volume,
                               sb.volume_blocks);
  if (!body || body->header.first_lsn != before.lsn + 1 || body->header.prev_hash != before.hash)
    return std::nullopt;
  if (frame->incarnation < sb.cut_incarnation && body->mark().lsn > sb.cut_lsn) return std::nullopt;
  return LiveRecord{*frame, std::move(*body), offset};
}

Lsn claim_of(const FrameHeader& frame, const Superblock& sb) {
  Lsn claim = std::max(frame.durable_lsn, frame.commit_lsn);
  return frame.incarnation < sb.cut_incarnation ? std::min(claim, sb.cut_lsn) : claim;
}

}  // namespace

std::optional<Superblock> superblock_in(const SimFile& journal) {
  std::optional<Superblock> newest;
  for (std::uint64_t at : superblock_offset) {
    auto sb = decode_superblock({journal.page(at / block_size).bytes(), block_size});
    if (sb && (!newest || sb->generation > newest->generation)) newest = std::move(*sb);
  }
  return newest;
}

std::vector<LiveRecord> records_in(const SimFile& journal) {
  std::vector<LiveRecord> records;
  auto sb = superblock_in(journal);
  if (!sb) return records;
  std::uint64_t pos = sb->tail_pos.v, end = pos + sb->ring_bytes;
  LogMark last = sb->tail;
  while (pos < end) {
    auto found = record_at(journal, *sb, pos, last);
    // A record that did not fit before the ring's end is at the ring's beginning.
    std::uint64_t wrapped = (pos / sb->ring_bytes + 1) * sb->ring_bytes;
    if (!found && pos % sb->ring_bytes != 0 && wrapped < end) found = record_at(journal, *sb, wrapped, last);
    if (!found || found->frame.pos.v + found->bytes() > end) break;
    pos = found->frame.pos.v + found->bytes();
    last = found->body.mark();
    records.push_back(std::move(*found));
  }
  Lsn claimed = sb->commit;
  for (auto r = records.rbegin(); r != records.rend(); ++r) {
    r->proven = claimed >= r->body.header.first_lsn;
    claimed = std::max(claimed, claim_of(r->frame, *sb));
  }
  return records;
}

}  // namespace twinloft::repl::sim
