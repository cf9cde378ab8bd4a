#include "volume.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

bool Output::empty() const {
  return std::apply([](auto&... each) { return (each.empty() && ...); }, const_cast<Output*>(this)->all());
}

void Output::clear() {
  std::apply([](auto&... each) { (each.clear(), ...); }, all());
}

void Output::swap(Output& other) {
  auto exchange = [&](auto&... ours) {
    std::apply([&](auto&... theirs) { (ours.swap(theirs), ...); }, other.all());
  };
  std::apply(exchange, all());
}

Volume::Volume(const Config& c, const RecoveredLog& recovered, Arena& a, Arena& reads, Random& r)
    : config(c),
      arena(a),
      read_arena(reads),
      random(r),
      disk(recovered.superblock.disk),
      sb(recovered.superblock),
      home_map(recovered.home_map),
      log({sb.ring_bytes, sb.tail_pos}, sb.tail, sb.tail_epoch),
      far(config, log, readable_from),
      committed(a) {
  distrusts_disk = disk.inconsistent();
  for (const PeerConfig& p : config.peers) links.emplace_back().config = p;
}

// A replica without a slot gets a free slot. While the log here has the whole history, it may lack at most
// the blocks of the log. Later, its content is unknown.
void Volume::load_dirty(RecoveredLog& recovered) {
  auto configured = [&](ReplicaId id) { return find_link(id) != nullptr; };
  for (const Link& l : links) {
    auto of = [&](const DirtySlot& d) { return d.peer == l.config.id; };
    if (std::any_of(sb.dirty.begin(), sb.dirty.end(), of)) continue;
    auto free = std::find_if(sb.dirty.begin(), sb.dirty.end(),
                             [&](const DirtySlot& d) { return d.peer == 0 || !configured(d.peer); });
    if (free == sb.dirty.end()) continue;
    *free = {l.config.id, sb.tail.lsn.v == 0, {}, sb.tail.lsn.v == 0 ? sb.tail : LogMark{}};
    recovered.dirty[static_cast<std::size_t>(free - sb.dirty.begin())].clear();
  }
  Lsn last = recovered.records.empty() ? sb.tail.lsn : recovered.records.back().body.mark().lsn;
  for (std::uint32_t i = 0; i < bitmap_slots; ++i) {
    if (sb.dirty[i].known && sb.dirty[i].since.lsn > last) sb.dirty[i].known = false;
    DirtyMap& d = dirty.emplace_back(sb.dirty[i], i, sb.volume_blocks, std::move(recovered.dirty[i]));
    for (const StoredRecord& r : recovered.records) {
      Lsn at = r.body.mark().lsn;
      if (at > recovered.commit || at <= d.slot().since.lsn) continue;
      for (const Extent& e : r.body.extents) d.mark(e.lba, e.blocks);
    }
  }
}

// Leaves the committed image as commit_upto() does, but a checkpoint is due at once. So the next start has
// less to do.
void Volume::load_committed(const RecoveredLog& recovered) {
  for (std::size_t i = 0; i < recovered.loaded.size(); ++i) TL_CHECK(arena.take() == i);
  for_each_loaded(
      recovered,
      [&](std::size_t n, const LoadedBlock& b) {
        auto slot = static_cast<Slot>(n);
        committed.put_data(b.lba, slot, b.lsn.v);
        arena.unref(slot);
      },
      [&](const Extent& e, Lsn lsn) { committed.put_zeros(e.lba, e.blocks, lsn.v); });
}

Status Volume::load(RecoveredLog recovered) {
  load_dirty(recovered);
  load_committed(recovered);
  digests = std::move(recovered.digests);
  std::uint64_t serial = 0;
  RecordNo commit_end = home_end = log.first();
  for (StoredRecord& found : recovered.records) {
    LogRecord r;
    r.mark = found.body.mark();
    r.first = found.body.header.first_lsn;
    r.epoch = found.body.header.epoch;
    r.type = found.body.header.type;
    r.epoch_change = found.body.epoch_change;
    r.pos = found.pos;
    r.total_blocks = found.total_blocks;
    r.meta_bytes = found.meta_bytes;
    r.serial = ++serial;
    r.durable = true;
    bool is_committed = r.mark.lsn <= recovered.commit;
    if (!is_committed) {
      std::size_t meta_blocks = meta_blocks_for(r.meta_bytes), payload = found.payload.size() / block_size;
      if (arena.free() < meta_blocks + payload)
        return fail(Errc::exhausted,
                    "the journal holds more uncommitted records than the arena of {} MiB can take: "
                    "raise `arena` in the volume's configuration",
                    arena.size() * block_size >> 20);
      r.extents = found.body.extents;
      std::vector<std::byte> image(meta_blocks * block_size);
      std::memcpy(image.data() + frame_header_bytes, found.meta.data(), found.meta.size());
      image.insert(image.end(), found.payload.begin(), found.payload.end());
      for (std::size_t i = 0; i < meta_blocks + payload; ++i) {
        Slot slot = arena.take();
        std::memcpy(arena.data(slot), image.data() + i * block_size, block_size);
        (i < meta_blocks ? r.meta_slots : r.payload_slots).push_back(slot);
      }
    }
    Lsn lsn = r.mark.lsn;
    RecordNo no = log.append(std::move(r));
    if (is_committed) commit_end = no + 1;
    if (lsn <= recovered.home) home_end = no + 1;
  }
  log.set_committed_end(commit_end);
  // Records may be committed although this is not known here. The previous process may have written them home
  // without a sync.
  if (commit_end < log.end()) distrusts_disk = true;
  digests_exact = committed.empty() && !distrusts_disk;
  recovered_end = log.last_mark().lsn;
  commit_durable = commit_lsn();
  return {};
}

Link* Volume::find_link(ReplicaId id) {
  for (Link& l : links)
    if (l.config.id == id) return &l;
  return nullptr;
}

DirtyMap* Volume::find_dirty(ReplicaId id) {
  for (DirtyMap& d : dirty)
    if (d.slot().peer == id && id != 0) return &d;
  return nullptr;
}

void Volume::note_covered() {
  for (const Link& l : links) {
    DirtyMap* d = find_dirty(l.config.id);
    if (!d || l.covered_end < log.first()) continue;
    d->covered(log.epoch_before(l.covered_end), log.mark_before(l.covered_end),
               l.covered_end == log.committed_end());
  }
}

void Volume::note_parting(const Link& l) {
  DirtyMap* d = find_dirty(l.config.id);
  if (!d || l.covered_end < log.first() || l.covered_end != log.committed_end()) return;
  d->part(log.epoch_before(l.covered_end), log.mark_before(l.covered_end));
  write_superblock(for_parting);
}

// Only an unknown slot may change between two moves of the tail, since its marks on the disk do not count.
// A known slot changes with the tail, so that its `since` is durable before marks are cleared.
void Volume::learn(const Link& l) {
  DirtyMap* d = find_dirty(l.config.id);
  if (!d || d->slot().known || l.covered_end < log.first() || l.covered_end != log.committed_end()) return;
  d->covered(log.epoch_before(l.covered_end), log.mark_before(l.covered_end), true);
}

EpochEntry Volume::epoch_at(Lsn lsn) const {
  for (auto e = sb.epochs.rbegin(); e != sb.epochs.rend(); ++e)
    if (e->start <= lsn) return *e;
  return {};
}

EpochEntry Volume::recorded() const {
  Lsn last = log.last_mark().lsn;
  for (auto e = sb.epochs.rbegin(); e != sb.epochs.rend(); ++e)
    if (e->start <= last) return *e;
  EpochEntry none;
  none.in_sync = set_of(sb.replica);
  for (const PeerConfig& p : config.peers)
    if (p.protocol == Protocol::C) none.in_sync |= set_of(p.id);
  return none;
}

History Volume::history() const {
  EpochEntry newest = recorded();
  History h{sb.replica,
            config.arbiter == Arbiter::external,
            sb.epochs,
            newest,
            log.epoch_before(log.end()),
            log.last_mark().lsn,
            commit_lsn(),
            {},
            {}};
  if (ends_in_a_cut()) h.cut_for = sb.cut_for;
  if (const auto* d = disk.damaged()) h.incomplete = *d;
  if (const auto* s = disk.syncing()) h.incomplete = *s;
  return h;
}

std::uint64_t Volume::newest_epoch() const {
  std::uint64_t newest = log.epoch_before(log.end()).counter;
  if (const EpochEntry* lost = newest_lost()) newest = std::max(newest, lost->epoch.counter);
  for (const EpochEntry& e : sb.epochs) newest = std::max(newest, e.epoch.counter);
  newest = std::max(newest, sb.cut_for.epoch.counter);
  for (const Link& l : links)
    if (l.state) newest = std::max(newest, l.state->newest_epoch);
  return newest;
}

const EpochEntry* Volume::newest_lost() const {
  const auto* d = disk.damaged();
  return d && d->newest ? &*d->newest : nullptr;
}

// A promotion uses the newest epoch, even if its record is lost here, was cut off, or has not arrived yet.
EpochEntry Volume::told_epoch() const {
  EpochEntry newest = recorded();
  const EpochEntry* lost = newest_lost();
  if (lost && lost->epoch.counter > newest.epoch.counter) newest = *lost;
  return sb.cut_for.epoch.counter > newest.epoch.counter ? sb.cut_for : newest;
}

NodeState Volume::node_state(bool primary) const {
  NodeState s;
  s.primary = primary;
  s.inconsistent = disk.inconsistent();
  s.whole = whole();
  // Damaged or Finishing: the content is complete up to the end of the log.
  if (const auto* syncing = disk.syncing())
    s.base = syncing->base;
  else if (s.inconsistent)
    s.base = LogPoint{log.epoch_before(log.end()), log.last_mark().lsn};
  s.newest_epoch = newest_epoch();
  s.epoch = told_epoch();
  s.last = log.last_mark();
  s.commit = commit_lsn();
  s.epochs = sb.epochs;
  return s;
}

const SplitBrain* Volume::split_brain_with(ReplicaId id) const {
  auto it = std::find_if(sb.split_brains.begin(), sb.split_brains.end(),
                         [&](const SplitBrain& s) { return s.with == id; });
  return it == sb.split_brains.end() ? nullptr : &*it;
}

void Volume::note_split_brain(ReplicaId id, std::optional<Lsn> parted) {
  auto* known = const_cast<SplitBrain*>(split_brain_with(id));
  if (known && (!parted || known->parted == parted)) return;
  if (known)
    known->parted = parted;
  else
    sb.split_brains.push_back({id, parted});
  write_superblock(for_split_brain);
}

void Volume::end_split_brain(ReplicaId id) {
  if (std::erase_if(sb.split_brains, [&](const SplitBrain& s) { return s.with == id; }) == 0) return;
  out.notices.push_back(
      {false, fmt::format("the split brain with replica {} is over", id), NoticeKind::other, id});
  write_superblock(for_split_brain);
}

void Volume::end_split_brains_but(ReplicaId id) {
  std::vector<ReplicaId> over;
  for (const SplitBrain& s : sb.split_brains)
    if (s.with != id) over.push_back(s.with);
  for (ReplicaId other : over) end_split_brain(other);
}

// An epoch has one writer, and its record names the record before it. So logs that end in the same epoch are
// one history. Two secondaries of one primary end their split brain this way.
void Volume::end_split_brain_if_one_history(const Link& link) {
  if (!link.state || !split_brain_with(link.config.id) || disk.inconsistent() || link.state->inconsistent)
    return;
  const Epoch& ours = recorded().epoch;
  if (!ours.id.is_nil() && link.state->epoch.epoch == ours) end_split_brain(link.config.id);
}

void Volume::note_split_brain_of_secondaries(const Link& link) {
  if (!link.state || link.state->primary || split_brain_with(link.config.id)) return;
  bool comparable = whole() && link.state->whole && !link.state->inconsistent;
  if (!comparable || !have_parted(history(), link.config.id, *link.state)) return;
  note_split_brain(link.config.id, std::nullopt);
  out.notices.push_back(
      {true,
       fmt::format("split brain: replica {} continued in epoch {}, and replica {} in epoch {}, each without "
                   "the other",
                   sb.replica, recorded().epoch.counter, link.config.id, link.state->epoch.epoch.counter),
       NoticeKind::split_brain, link.config.id});
}

void Volume::refuse_link(ReplicaId id, const std::string& reason, bool split_brain) {
  NoticeKind kind = split_brain ? NoticeKind::split_brain : NoticeKind::refused;
  out.notices.push_back({true, fmt::format("replica {}: {}", id, reason), kind, id});
  if (Link* link = find_link(id)) link->refused = true;
  out.sends.push_back(Send{id, Refuse{reason, split_brain}});
  out.closes.push_back({id, reason});
}

RecordNo Volume::journal_record(const Body& body, ByteSpan meta, std::vector<Slot> payload, JournalPos pos,
                                std::uint64_t serial) {
  LogRecord r;
  r.mark = body.mark();
  r.first = body.header.first_lsn;
  r.epoch = body.header.epoch;
  r.type = body.header.type;
  r.epoch_change = body.epoch_change;
  r.pos = pos;
  r.meta_bytes = static_cast<std::uint32_t>(meta.size());
  r.serial = serial;
  r.extents = body.extents;
  r.payload_slots = std::move(payload);

  std::uint32_t meta_blocks = meta_blocks_for(meta.size());
  r.total_blocks = meta_blocks + static_cast<std::uint32_t>(r.payload_slots.size());
  FrameHeader frame{pos,
                    log.mark_before(log.durable_end()).lsn,
                    commit_lsn(),
                    sb.incarnation,
                    r.total_blocks,
                    r.meta_bytes,
                    sb.replica,
                    sb.volume};
  std::size_t done = 0;
  for (std::uint32_t i = 0; i < meta_blocks; ++i) {
    Slot slot = arena.take();
    r.meta_slots.push_back(slot);
    std::size_t skip = i == 0 ? frame_header_bytes : 0;
    std::size_t n = std::min(meta.size() - done, block_size - skip);
    std::memcpy(arena.data(slot) + skip, meta.data() + done, n);
    std::memset(arena.data(slot) + skip + n, 0, block_size - skip - n);
    done += n;
  }
  encode_frame(frame, {arena.data(r.meta_slots[0]), frame_header_bytes});

  JournalWrite write;
  write.offset = journal_offset(pos);
  for (const std::vector<Slot>* slots : {&r.meta_slots, &r.payload_slots})
    for (Slot slot : *slots) add_piece(write.pieces, arena.data(slot), block_size);
  counters.records++;
  counters.records_bytes += std::uint64_t{r.total_blocks} * block_size;
  RecordNo no = log.append(std::move(r));
  write.token = make_token(TokenKind::journal_write, no);
  out.journal_writes.push_back(std::move(write));
  ++journal_in_flight;
  // The superblock has the epoch too before the record counts as durable. If the record is damaged later, the
  // epoch is still known.
  if (body.header.type == RecordType::epoch) {
    log.hold_durable(no);
    sb.arbiter = config.arbiter_place;
    write_superblock(for_epoch);
  }
  return no;
}

void Volume::on_journal_written(RecordNo no, int error) {
  TL_CHECK(journal_in_flight > 0);
  --journal_in_flight;
  if (error != 0) {
    fail_device(fmt::format("the journal failed a write ({})", errno_text(error)));
    return;
  }
  if (!failed) log.set_durable(no);
}

void Volume::release_memory(LogRecord& r) {
  for (Slot s : r.meta_slots) arena.unref(s);
  for (Slot s : r.payload_slots) arena.unref(s);
  r.meta_slots = {};
  r.payload_slots = {};
  r.extents = {};
}

SendRecord Volume::record_message(ReplicaId peer, const Epoch& epoch, const LogRecord& r) const {
  SendRecord send{peer, epoch, r.meta_bytes, {}};
  std::size_t left = r.meta_bytes;
  for (std::size_t i = 0; i < r.meta_slots.size(); ++i) {
    std::size_t skip = i == 0 ? frame_header_bytes : 0;
    std::size_t n = std::min(left, block_size - skip);
    add_piece(send.pieces, arena.data(r.meta_slots[i]) + skip, static_cast<std::uint32_t>(n));
    left -= n;
  }
  for (Slot s : r.payload_slots) add_piece(send.pieces, arena.data(s), block_size);
  return send;
}

void Volume::write_superblock(Purpose purpose) {
  superblock_wanted_ |= purpose;
  if (superblock_in_flight_ == 0) start_superblock_write();
}

void Volume::start_superblock_write() {
  sb.generation++;
  sb.commit = commit_in_flight_ = commit_lsn();
  sb.disk = disk.stored();
  for (std::size_t i = 0; i < dirty.size(); ++i)
    sb.dirty[i] = dirty[i].slot(), since_in_flight_[i] = dirty[i].slot().since.lsn;
  superblock_in_flight_ = superblock_wanted_;
  superblock_wanted_ = 0;
  out.superblock_writes.push_back({make_token(TokenKind::superblock, sb.generation), sb});
}

unsigned Volume::on_superblock_written(int error) {
  if (error != 0) {
    fail_device(fmt::format("the journal failed a write of the superblock ({})", errno_text(error)));
    return 0;
  }
  // A purpose that was requested again during the write is done only after the next write.
  for (std::size_t i = 0; i < dirty.size(); ++i) dirty[i].since_is_durable(since_in_flight_[i]);
  commit_durable = commit_in_flight_;
  unsigned done = superblock_in_flight_ & ~superblock_wanted_;
  superblock_in_flight_ = 0;
  if (superblock_wanted_ != 0) start_superblock_write();
  return done;
}

void Volume::settle_refill() {
  const auto* refilling = disk.refilling();
  if (!refilling) return;
  RecordNo end = log.durable_end();
  bool later = log.epoch_before(end).counter > refilling->reported_in.counter;
  if (later || log.mark_before(end).lsn >= refilling->until) disk.refilled();
}

void Volume::accept_loss() {
  out.notices.push_back(
      {true,
       fmt::format("acknowledged writes after LSN {} that this replica has lost will not be restored",
                   log.last_mark().lsn.v),
       NoticeKind::other, sb.replica});
  // The data area may have blocks of lost records, and these blocks are unknown.
  if (disk.damaged()) {
    for (DirtyMap& d : dirty) d.forget();
    for (Link& l : links) l.covered_end = 0;
  }
  disk.accept_loss();
}

void Volume::settle_loss(RecordNo epoch_end) {
  if (!disk.accepting_loss() || log.durable_end() < epoch_end) return;
  disk.loss_settled();
  write_superblock(for_consistent);
}

void Volume::give_up_unreachable() {
  for (FarBuffer& b : far) {
    if (b.given_up() || far.reaches(b)) continue;
    far.give_up(b, now);
    out.notices.push_back(
        {true,
         fmt::format("records that replica {} lacks are not here any more: a resync will bring them", b.of),
         NoticeKind::buffer_full, b.of});
  }
}

// A completed write that cannot become durable is lost data, so the failure stays even if later writes work.
void Volume::fail_device(std::string reason) {
  if (failed) return;
  failed = true;
  failure = std::move(reason);
  out.notices.push_back(
      {true, failure + ": all writes fail until the device is attached again", NoticeKind::failed});
}

}  // namespace twinloft::repl::core
