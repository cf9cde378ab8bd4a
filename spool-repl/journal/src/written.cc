#include "twinloft/spool-repl/journal/written.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "bitmap_reader.h"
#include "twinloft/spool-repl/format/bitmap.h"

namespace twinloft::repl::journal {

namespace {

// An epoch of this log. `committed` was known to be committed when its record was written, if the journal
// still has the record.
struct KnownEpoch {
  EpochEntry entry;
  std::optional<Lsn> committed;
};

// The superblock's table is a cache. The journal is newer.
std::vector<KnownEpoch> epochs_of(const History& history) {
  std::vector<KnownEpoch> out;
  for (const EpochEntry& e : history.superblock().epochs)
    if (e.start <= history.superblock().tail.lsn) out.push_back({e, std::nullopt});
  for (const ListedRecord& r : history.records()) {
    if (r.body.header.type != RecordType::epoch) continue;
    const EpochChange& c = r.body.epoch_change;
    out.push_back({entry_of(c, r.body.header.first_lsn), r.frame.commit_lsn});
  }
  return out;
}

const DirtySlot* slot_of(const Superblock& sb, ReplicaId winner) {
  for (const DirtySlot& d : sb.dirty)
    if (d.peer == winner && d.known) return &d;
  return nullptr;
}

Epoch epoch_at(const std::vector<KnownEpoch>& epochs, Lsn lsn) {
  Epoch at;
  for (const KnownEpoch& e : epochs)
    if (e.entry.start <= lsn) at = e.entry.epoch;
  return at;
}

// The marks of all blocks that were committed after `since`, and whose records the journal no longer has.
Result<std::vector<std::uint64_t>> marked_blocks(ports::BlockFile& journal, const Superblock& sb,
                                                 ReplicaId winner) {
  const DirtySlot* slot = slot_of(sb, winner);
  if (!slot)
    return fail(Errc::conflict,
                "{}: it is unknown what replica {} has: the journal begins at LSN {}, after the split",
                journal.name(), winner, sb.tail.lsn.v);
  ReadBitmap bitmap = read_bitmap(journal, sb, static_cast<std::uint32_t>(slot - sb.dirty.data()));
  if (bitmap.pages_lost > 0)
    return fail(Errc::corrupt,
                "{}: {} pages of the bitmap for replica {} are damaged: it is unknown which of their blocks "
                "were written after the split",
                journal.name(), bitmap.pages_lost, winner);
  return std::move(bitmap.words);
}

}  // namespace

bool WrittenBlocks::any(std::uint64_t lba, std::uint64_t blocks) const {
  std::uint64_t end = std::min<std::uint64_t>(lba + blocks, words_.size() * 64);
  while (lba < end) {
    std::uint64_t n = std::min(64 - lba % 64, end - lba);
    std::uint64_t mask = (n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << lba % 64;
    if (words_[lba / 64] & mask) return true;
    lba += n;
  }
  return false;
}

std::uint64_t WrittenBlocks::count() const {
  std::uint64_t n = 0;
  for (std::uint64_t w : words_) n += static_cast<std::uint64_t>(std::popcount(w));
  return n;
}

void WrittenBlocks::add(std::uint64_t lba, std::uint64_t blocks) {
  std::uint64_t limit = words_.size() * 64;
  if (lba < limit) set_bitmap_bits(words_, Lba{lba}, std::min(blocks, limit - lba));
}

// While the winner is a member, every committed record is on its disk. So the winner has everything that was
// known to be committed at the start of the first epoch without it, and may have later records. `since` of
// its bitmap is later if the winner was connected again.
Result<Parting> find_parting(const History& history, ReplicaId winner) {
  std::vector<KnownEpoch> epochs = epochs_of(history);
  auto counts = [&](const KnownEpoch& e) { return (e.entry.in_sync & set_of(winner)) != 0; };
  if (epochs.empty() || counts(epochs.back()))
    return fail(
        Errc::conflict,
        "no split is known: in the log of this replica, which ends at LSN {}, replica {} never left the "
        "in-sync set",
        history.last().v, winner);
  auto last_with = std::find_if(epochs.rbegin(), epochs.rend(), counts);
  Lsn since;
  if (last_with != epochs.rend()) since = last_with.base()->committed.value_or(Lsn{});
  if (const DirtySlot* slot = slot_of(history.superblock(), winner);
      slot && slot->since.lsn <= history.last())
    since = std::max(since, slot->since.lsn);
  return Parting{since, epoch_at(epochs, since)};
}

Result<WrittenBlocks> blocks_written_since(ports::BlockFile& journal, const History& history,
                                           ReplicaId winner) {
  TL_TRY_ASSIGN(Parting parting, find_parting(history, winner));
  const Superblock& sb = history.superblock();
  std::vector<std::uint64_t> words(bitmap_words(sb.volume_blocks));
  // Records in the journal need no bitmap, whose marks may be of records from before the parting.
  if (sb.tail.lsn > parting.since) {
    TL_TRY_ASSIGN(words, marked_blocks(journal, sb, winner));
  }
  WrittenBlocks written(parting, std::move(words));
  for (const ListedRecord& r : history.records()) {
    if (r.body.mark().lsn <= parting.since) continue;
    for (const Extent& e : r.body.extents) written.add(e.lba.v, e.blocks);
  }
  return written;
}

}  // namespace twinloft::repl::journal
