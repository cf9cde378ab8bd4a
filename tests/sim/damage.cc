// Damage to a journal at rest: what recovery must refuse, and what it must repair.
#include <algorithm>

#include "journal_view.h"
#include "node.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::sim {

// Works on copies. A replica that refuses to start would have to be replaced, and other faults do that.
void Cluster::probe_damage(const Node& n) {
  if (n.damaged) return;
  SimFile journal = n.journal;
  auto records = records_in(journal);
  std::vector<const LiveRecord*> proven;
  for (const LiveRecord& r : records)
    if (r.proven) proven.push_back(&r);
  if (proven.empty()) return;
  const LiveRecord& hit = *proven[random_.below(proven.size())];
  std::uint64_t at = hit.offset, payload = hit.payload_at();
  std::uint64_t how = random_.below(3);
  switch (how) {
    case 0:
      journal.flip(at + random_.below(frame_header_bytes + hit.frame.meta_bytes), random_);
      break;
    case 1:
      if (hit.body.header.payload_blocks == 0) return;
      journal.flip(at + payload + random_.below(std::uint64_t{hit.body.header.payload_blocks} * block_size),
                   random_);
      break;
    default:  // a write to the wrong place, or zeros
      journal.write_durable(
          at, {random_.below(2) == 0 || &hit == &records[0] ? Page()
                                                            : journal.page(records[0].offset / block_size)});
  }
  SimFile data = n.data;
  auto recovered = journal::recover(journal, data);
  if (recovered)
    violated(
        fmt::format("replica {}: damage of kind {} to the record at {} counts as the end of the log: {} "
                    "records of {} are found",
                    n.id, how, hit.body.header.first_lsn.v, recovered->log.records.size(), records.size()));
  if (recovered.error().code != Errc::corrupt)
    violated(fmt::format("replica {}: damage has the wrong error: {}", n.id, recovered.error().message));
  coverage_.hit("recovery: damage to a record refused");
}

void Cluster::damage_superblock(Node& n) {
  for (int copy : {0, 1})
    if (!decode_superblock({n.journal.page(superblock_offset[copy] / block_size).bytes(), block_size}))
      return;  // already torn
  SimFile journal = n.journal, data = n.data;
  for (int copy : {0, 1}) journal.flip(superblock_offset[copy] + random_.below(256), random_);
  if (journal::recover(journal, data)) violated(fmt::format("replica {} starts without a superblock", n.id));
  coverage_.hit("recovery: two damaged superblocks refused");
  n.journal.flip(superblock_offset[random_.below(2)] + random_.below(256), random_);
  coverage_.hit("fault: a copy of the superblock is damaged");
}

}  // namespace twinloft::repl::sim
