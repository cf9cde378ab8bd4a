#include "twinloft/spool-repl/journal/listing.h"

#include <algorithm>

#include "chain_walk.h"
#include "twinloft/spool-repl/journal/recovery.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::journal {

namespace {

Status list_frames_behind(RingReader& reader, Listing& out) {
  const Superblock& sb = out.superblock;
  for (std::uint64_t p = out.end.v; p < sb.tail_pos.v + sb.ring_bytes; p += block_size) {
    TL_TRY_ASSIGN(ByteSpan block, reader.read(p % sb.ring_bytes, block_size));
    auto frame = decode_frame(block, sb.volume);
    if (frame && frame->pos.v == p && frame->replica == sb.replica) out.behind.push_back(*frame);
  }
  return {};
}

}  // namespace

Result<Listing> list_journal(ports::BlockFile& journal) {
  TL_TRY_ASSIGN(SuperblockCopies found, read_superblock(journal));
  Listing out;
  out.superblock = found.superblock;
  out.superblock_copies_agree = found.copies_agree;
  const Superblock& sb = out.superblock;
  // Recovery's own scan, so that both have the same result.
  TL_TRY_ASSIGN(Scan scan, scan_journal(journal, sb));
  if (scan.damage)
    out.damage = Error{Errc::corrupt, fmt::format("{}: {}", journal.name(), scan.damage->text)};
  RingReader reader(journal, sb);
  ChainWalk walk(sb.tail_pos, sb.tail);
  out.commit = std::max(sb.commit, sb.tail.lsn);
  for (;;) {
    TL_TRY_ASSIGN(auto record, walk.next(reader, sb, sb.tail_pos.v + sb.ring_bytes));
    if (!record) break;
    out.commit = std::max(out.commit, record->frame.commit_lsn);
    out.records.push_back(std::move(*record));
  }
  out.end = walk.pos();
  out.last = walk.last();
  TL_TRY(list_frames_behind(reader, out));
  return out;
}

}  // namespace twinloft::repl::journal
