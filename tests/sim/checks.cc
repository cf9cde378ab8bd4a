// What is on the disks, against what the clients know.
#include <algorithm>

#include "node.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::sim {

// What a person would find who pulled the plug now: recovery on copies of the disks.
Cluster::Found Cluster::after_power_cut(const Node& n) {
  if (n.damaged) return {};
  SimFile journal = n.journal, data = n.data;
  SeededRandom torn(random_.draw());
  if (n.alive()) {
    journal.power_cut(torn);
    data.power_cut(torn);
  }
  auto recovered = journal::recover(journal, data);
  if (!recovered) violated(fmt::format("replica {} would not recover: {}", n.id, recovered.error().message));
  Found found;
  std::vector<Page> content(volume_blocks_);
  for (std::uint64_t b = 0; b < volume_blocks_; ++b) content[b] = data.page(b);
  Lsn last = recovered->log.superblock.tail.lsn;
  found.consistent = recovered->log.superblock.inconsistent_source.id.is_nil();
  for (const StoredRecord& r : recovered->log.records) {
    last = r.body.mark().lsn;
    if (r.body.header.type == RecordType::epoch) found.in_sync = r.body.epoch_change.in_sync;
    if (r.body.mark().lsn <= recovered->log.commit) continue;
    const std::byte* at = r.payload.data();
    for (const Extent& e : r.body.extents)
      for (std::uint64_t b = e.lba.v; b < e.lba.v + e.blocks; ++b) {
        content[b] = e.kind == ExtentKind::zeros ? Page() : Page::of(at);
        if (e.kind != ExtentKind::zeros) at += block_size;
      }
  }
  if (found.in_sync == 0)
    for (const EpochEntry& e : recovered->log.superblock.epochs)
      if (e.start <= last) found.in_sync = e.in_sync;
  if (!found.consistent) return found;
  for (const Page& page : content) {
    auto word = page.word();
    if (!word) violated(fmt::format("replica {}: block {} is torn", n.id, found.image.size()));
    found.image.push_back(*word);
  }
  return found;
}

void Cluster::check(const Node& n, const Found& found, bool need_promised, const char* when) {
  auto states = history_.matching(found.image);
  if (std::any_of(states.begin(), states.end(), [&](History::State s) { return !need_promised || history_.holds_all(s); })) return;
  violated(fmt::format("{}: replica {} holds no {}prefix: {}", when, n.id, need_promised ? "sufficient " : "",
                       history_.explain(found.image)));
}

// Every member of the recorded set holds every promise at this very moment; the others, where they are not being filled, the state
// after some requests.
void Cluster::check_all(const char* when) {
  Node* p = primary();
  ReplicaSet in_sync = external_ && arbiter_.value ? arbiter_.value->in_sync : p ? after_power_cut(*p).in_sync : 0;
  for (auto& n : nodes_) {
    Found found = after_power_cut(*n);
    if (found.consistent) check(*n, found, (in_sync & set_of(n->id)) != 0 && !n->replaced, when);
  }
}

}  // namespace twinloft::repl::sim
