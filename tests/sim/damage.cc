// Damage to a journal at rest: what recovery must refuse, and what it must mend.
#include <algorithm>

#include "node.h"
#include "twinloft/spool-repl/journal/recovery.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::sim {

// On copies: a replica that refuses to start would be replaced, which other faults do.
void Cluster::probe_damage(const Node& n) {
  SimFile journal = n.journal;
  auto loaded = journal::load_superblock(journal);
  if (!loaded) violated(fmt::format("replica {}: {}", n.id, loaded.error().message));
  const Superblock& sb = loaded->superblock;
  auto scan = journal::scan_journal(journal, sb);
  if (!scan) violated(fmt::format("replica {} would not recover: {}", n.id, scan.error().message));
  if (scan->damage) return;  // there is some already
  const auto& records = scan->log.records;
  auto offset_of = [&](const StoredRecord& r) { return sb.ring_offset + r.pos.v % sb.ring_bytes; };

  // Records that one behind them, or the superblock, says were durable.
  std::vector<const StoredRecord*> proven;
  Lsn claimed = sb.commit;
  for (auto r = records.rbegin(); r != records.rend(); ++r) {
    if (claimed >= r->body.header.first_lsn) proven.push_back(&*r);
    auto frame = decode_frame({journal.page(offset_of(*r) / block_size).bytes(), block_size}, sb.volume);
    if (!frame) violated(fmt::format("replica {}: a record without a frame at {}", n.id, offset_of(*r)));
    Lsn claims = std::max(frame->durable_lsn, frame->commit_lsn);
    if (frame->incarnation < sb.cut_incarnation) claims = std::min(claims, sb.cut_lsn);
    claimed = std::max(claimed, claims);
  }
  if (proven.empty()) return;
  const StoredRecord& hit = *proven[random_.below(proven.size())];
  std::uint64_t at = offset_of(hit), payload = std::uint64_t{meta_blocks_for(hit.meta_bytes)} * block_size;
  std::uint64_t how = random_.below(3);
  switch (how) {
    case 0: journal.flip(at + random_.below(frame_header_bytes + hit.meta_bytes), random_); break;
    case 1:
      if (hit.body.header.payload_blocks == 0) return;
      journal.flip(at + payload + random_.below(std::uint64_t{hit.body.header.payload_blocks} * block_size), random_);
      break;
    default:  // a write that went to the wrong place, or zeros that came back
      journal.write_durable(at, {random_.below(2) == 0 || &hit == &records[0] ? Page() : journal.page(offset_of(records[0]) / block_size)});
  }
  SimFile data = n.data;
  auto recovered = journal::recover(journal, data);
  if (recovered)
    violated(fmt::format("replica {}: damage of kind {} to the record at {} is taken for the end of the log: {} records of {} are found",
                         n.id, how, hit.body.header.first_lsn.v, recovered->log.records.size(), records.size()));
  if (recovered.error().code != Errc::corrupt)
    violated(fmt::format("replica {}: damage is not called damage: {}", n.id, recovered.error().message));
  coverage_.hit("recovery: damage to a record refused");
}

void Cluster::damage_superblock(Node& n) {
  for (int copy : {0, 1})
    if (!decode_superblock({n.journal.page(superblock_offset[copy] / block_size).bytes(), block_size})) return;  // torn already
  SimFile journal = n.journal, data = n.data;
  for (int copy : {0, 1}) journal.flip(superblock_offset[copy] + random_.below(256), random_);
  if (journal::recover(journal, data)) violated(fmt::format("replica {} starts without a superblock", n.id));
  coverage_.hit("recovery: two damaged superblocks refused");
  n.journal.flip(superblock_offset[random_.below(2)] + random_.below(256), random_);
  coverage_.hit("fault: a copy of the superblock is damaged");
}

}  // namespace twinloft::repl::sim
