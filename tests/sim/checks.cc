// Compares the content of the disks with what the clients know.
#include <algorithm>

#include "journal_view.h"
#include "node.h"
#include "twinloft/spool-repl/core/dirty.h"
#include "twinloft/spool-repl/core/history.h"
#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::sim {

namespace {
// Some sectors hold different words. No request writes such a block.
bool is_torn(const Page& page) {
  for (std::uint64_t at = 0; at < block_size; at += sector_bytes)
    if (std::memcmp(page.bytes() + at, page.bytes() + at + 8, sector_bytes - 8) != 0) return true;
  return false;
}
}  // namespace

// The state after a power cut at this moment: recovery on copies of the disks.
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
  check_records(n, recovered->log);
  Found found;
  std::vector<Page> content(volume_blocks_);
  for (std::uint64_t b = 0; b < volume_blocks_; ++b) content[b] = data.page(b);
  const Superblock& sb = recovered->log.superblock;
  found.last = sb.tail.lsn;
  found.epoch = sb.tail_epoch;
  found.epochs = sb.epochs;
  if (sb.epochs.size() >= epoch_table_max) coverage_.hit("epochs: as many as the table holds");
  found.dirty = sb.dirty;
  found.marks = std::move(recovered->log.dirty);
  found.consistent = !is_inconsistent(sb.disk);
  if (found.consistent) check_digests(n, recovered->log.digests, data);
  for (auto& marks : found.marks) marks.resize(bitmap_words(volume_blocks_));
  for (const StoredRecord& r : recovered->log.records) {
    found.last = r.body.mark().lsn;
    found.epoch = r.body.header.epoch;
    if (r.body.header.type == RecordType::epoch) found.in_sync = r.body.epoch_change.in_sync;
    for (std::uint32_t slot = 0; slot < bitmap_slots; ++slot)
      for (const Extent& e : r.body.extents)
        if (r.body.mark().lsn > sb.dirty[slot].since.lsn) set_bitmap_bits(found.marks[slot], e.lba, e.blocks);
    if (r.body.mark().lsn <= recovered->log.commit) continue;
    const std::byte* at = r.payload.data();
    for (const Extent& e : r.body.extents)
      for (std::uint64_t b = e.lba.v; b < e.lba.v + e.blocks; ++b) {
        content[b] = e.kind == ExtentKind::zeros ? Page() : Page::of(at);
        if (e.kind != ExtentKind::zeros) at += block_size;
      }
  }
  if (found.in_sync == 0)
    for (const EpochEntry& e : sb.epochs)
      if (e.start <= found.last) found.in_sync = e.in_sync;
  for (const Page& page : content) {
    auto word = page.word();
    // After an accepted loss, a block may be torn by the power cut. The first word of each sector then stands
    // for the sector.
    if (!word && found.consistent && !loss_accepted_ && is_torn(page))
      violated(fmt::format("replica {}: block {} is torn", n.id, found.image.size()));
    found.image.push_back(word ? *word : history_.compose(page.bytes()));
  }
  // A replica that is being filled need not hold anything, whatever its content.
  if (found.consistent || !std::holds_alternative<disk_state::Syncing>(sb.disk))
    found.states = history_.matching(found.image);
  return found;
}

// Each block agrees with its digest, or the digest is unknown. Otherwise a good block would be refused. Runs
// every fourth time, because it takes long.
void Cluster::check_digests(const Node& n, const DigestTable& digests, const SimFile& data) {
  if (++digest_checks_ % 4 != 0) return;
  for (std::uint64_t b = 0; b < volume_blocks_; ++b)
    if (!digests.fits(Lba{b}, data.page(b).bytes()))
      violated(fmt::format("replica {}: block {} has the right content and a wrong digest", n.id, b));
}

// Only one replica writes in an epoch, and each place of an epoch has one record.
void Cluster::check_records(const Node& n, const RecoveredLog& log) {
  for (const StoredRecord& r : log.records) {
    LogMark mark = r.body.mark();
    auto [known, first] = records_.emplace(RecordKey{r.body.header.epoch.id, mark.lsn.v}, mark.hash);
    if (!first && known->second != mark.hash)
      violated(fmt::format("replica {} holds a different record at LSN {} of epoch {} than before", n.id,
                           mark.lsn.v, r.body.header.epoch.counter));
    if (r.body.header.type != RecordType::epoch) continue;
    auto [writer, fresh] = writers_.emplace(r.body.epoch_change.epoch.id, r.body.epoch_change.writer);
    if (!fresh && writer->second != r.body.epoch_change.writer)
      violated(fmt::format("replicas {} and {} both write epoch {}", writer->second,
                           r.body.epoch_change.writer, r.body.epoch_change.epoch.counter));
  }
  check_cut_off(n, log);
}

// Records that the journal's bytes prove durable are there after the start. before: the journal as the start
// has found it.
void Cluster::check_proven(const Node& n, const SimFile& before, const RecoveredLog& log) {
  auto records = records_in(before);
  auto last = std::find_if(records.rbegin(), records.rend(), [](const LiveRecord& r) { return r.proven; });
  if (last == records.rend()) return;
  LogMark mark = last->body.mark();
  bool found = std::any_of(log.records.begin(), log.records.end(),
                           [&](const StoredRecord& r) { return r.body.mark() == mark; });
  if (!found)
    violated(
        fmt::format("replica {} starts without the record at LSN {}, which was durable", n.id, mark.lsn.v));
}

void Cluster::check(const Node& n, const Found& found, bool need_promised, const char* when) {
  const auto& states = found.states;
  if (std::any_of(states.begin(), states.end(),
                  [&](History::State s) { return !need_promised || history_.holds_all(s); }))
    return;
  violated(fmt::format("{}: the content of replica {} is no {}state of the history: {}", when, n.id,
                       need_promised ? "sufficiently new " : "", history_.explain(found.image)));
}

// Each member of the recorded set holds every promise now, unless an operator used force. Each other replica
// that is not being filled holds the state after some request.
std::vector<Cluster::Found> Cluster::check_all(const char* when) {
  std::vector<Found> all;
  for (auto& n : nodes_) all.push_back(after_power_cut(*n));
  Node* p = primary();
  ReplicaSet in_sync = external_ && arbiter_.value ? arbiter_.value->in_sync : p ? all[p->index].in_sync : 0;
  for (auto& n : nodes_)
    if (all[n->index].consistent && !n->loss_accepted)
      check(*n, all[n->index], !by_force_ && (in_sync & set_of(n->id)) != 0 && !n->replaced, when);
  if (by_force_) check_kept(all, when);
  check_marks(all, when);
  return all;
}

// Each promise is on some replica.
void Cluster::check_kept(const std::vector<Found>& all, const char* when) {
  auto promises = history_.promised();
  for (History::State p : promises) {
    if (std::any_of(all.begin(), all.end(), [&](const Found& f) { return history_.any_holds(f.states, p); }))
      continue;
    if (!may_go_.contains(p))
      violated(fmt::format("{}: request {} was acknowledged, and no replica has it", when, p));
    history_.release(p);
  }
}

// The target holds an earlier point of the source's history, and the source has marked the target's missing
// blocks since then. Then every differing block must be marked (bitmap.h).
void Cluster::check_marks(const std::vector<Found>& all, const char* when) {
  for (auto& x : nodes_) {
    for (auto& y : nodes_) {
      const Found &source = all[x->index], &target = all[y->index];
      if (x == y || !source.consistent || !target.consistent) continue;
      for (std::uint32_t slot = 0; slot < bitmap_slots; ++slot) {
        const DirtySlot& d = source.dirty[slot];
        if (d.peer != y->id || !d.known || d.since.lsn > target.last) continue;
        if (!core::history_holds(source.epochs, source.last, target.epoch, target.last)) continue;
        bool behind = std::any_of(source.states.begin(), source.states.end(), [&](History::State s) {
          return std::any_of(target.states.begin(), target.states.end(),
                             [&](History::State t) { return history_.leads_to(t, s); });
        });
        if (!behind) continue;
        coverage_.hit("marks: compared");
        for (std::uint64_t b = 0; b < volume_blocks_; ++b)
          if (source.image[b] != target.image[b] && !(source.marks[slot][b / 64] >> b % 64 & 1))
            violated(fmt::format(
                "{}: block {} of replica {} differs from that of replica {}, which has not marked it", when,
                b, y->id, x->id));
      }
    }
  }
}

}  // namespace twinloft::repl::sim
