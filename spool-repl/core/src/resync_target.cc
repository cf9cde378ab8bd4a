// The target of a resync: gives up its own log, says on its disk that its data area means nothing, and takes
// content and records of the source as they come.
//
//   SyncBegin -> what is committed home -> own tail archived -> superblock (Inconsistent, empty log) ->
//   SyncReady SyncCheck -> read, compared -> SyncDiffer SyncData  -> committed image -> home, by the
//   checkpointer -> SyncAck SyncEnd   -> committed up to `until`, all home and synced -> superblock
//   (consistent)
#include <algorithm>
#include <array>
#include <bit>

#include "secondary.h"
#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

namespace {
constexpr std::size_t checks_max = 64;  // that a source has under way: fewer
}  // namespace

void Secondary::handle(SyncBegin& m) {
  if (connection_ != ConnectionState::Matching || m.epoch != epoch_ || begun_ || reset_ ||
      cut_ == Cut::archiving)
    return refuse("it began a resync at the wrong moment");
  if (v_.disk.finishing()) return refuse(just_ending);
  common_ = std::max(common_,
                     common_history(v_.sb.epochs, v_.log.last_mark().lsn, m.epochs, Lsn{UINT64_MAX}));
  Verdict verdict = judge_resync(v_.history(), {primary_, m.epoch, m.epochs, m.from.lsn});
  if (auto* split = std::get_if<verdict::SplitBrain>(&verdict)) return refuse(std::move(split->why), true);
  bool in_line = holds_source(m.epochs);
  // What it began behind that point comes as records.
  m.epochs.cut_behind(m.from.lsn);
  reset_ = m;
  reset_->whole = !in_line || !vouches(m);
  reset_archived_ = false;
  v_.hold_checkpoint = true;
  try_reset();
}

// Whether what an unfinished resync has brought is in that history too. Force on the other side is the
// source's own to see (Primary::vouches).
bool Secondary::holds_source(std::span<const EpochEntry> epochs) const {
  const auto* syncing = v_.disk.syncing();
  if (!syncing) return true;
  const Uuid& source = syncing->source.id;
  return source == epoch_.id ||
         std::any_of(epochs.begin(), epochs.end(), [&](const EpochEntry& e) { return e.epoch.id == source; });
}

// A resync that goes on within the records of another primary. Its content goes home only when the disk says
// whose it is; and where that of the last one is not in its history, nothing is known of the data area any
// more.
std::string Secondary::note_source(const Begin& m) {
  const auto* syncing = v_.disk.syncing();
  if (!syncing || syncing->source.id == m.epoch.id) return "";
  bool useless = syncing->base && !holds_source(m.epochs);
  v_.disk.change_source(m.epoch, !useless);
  v_.write_superblock(Volume::for_source);
  if (!useless) return "";
  return fmt::format(
      "an unfinished resync has brought here what replica {} does not have: it takes a full one", primary_);
}

// Whether the content here is known to be the source's history up to `since`, or beyond.
bool Secondary::vouches(const SyncBegin& m) const {
  if (m.whole) return false;
  if (v_.disk.damaged() || v_.disk.syncing()) {
    auto base = v_.disk.base();
    return base && m.since.lsn <= base->lsn && history_holds(m.epochs, m.from.lsn, base->epoch, base->lsn);
  }
  Lsn common = common_history(v_.sb.epochs, v_.log.last_mark().lsn, m.epochs, m.from.lsn);
  if (m.since.lsn > common || v_.commit_lsn() > common) return false;
  return m.since.lsn < v_.log.tail_mark().lsn || v_.log.find(m.since).has_value();
}

// Brings the data area to one point of the history: what the source calls committed at least. False: not
// there yet.
bool Secondary::settle_base() {
  v_.commit_upto(std::max(v_.log.committed_end(), v_.log.end_upto(reset_->since.lsn)),
                 [](const LogRecord&) {});
  bool home = v_.committed.empty() && v_.home_end >= v_.log.committed_end();
  // With the log goes what a start would know the digests from.
  bool known = !v_.digests.changed();
  v_.hold_checkpoint = home && known;
  if (!home)
    checkpointer_.request();
  else if (!known && checkpointer_.idle())
    checkpointer_.request_sync();
  return home && known && checkpointer_.idle();
}

// Before a resync what is committed is on the other replicas too. What is given up is nowhere else.
RecordNo Secondary::given_up_from() const {
  return giving_up_ ? v_.log.first() : v_.log.committed_end();
}

void Secondary::try_reset() {
  if (!reset_ || cut_ != Cut::none || v_.log.durable_end() != v_.log.end() || v_.journal_in_flight > 0 ||
      v_.failed)
    return;
  if (!reset_->whole && !v_.disk.syncing() && !settle_base()) return;
  if (!checkpointer_.idle()) return;
  RecordNo from = given_up_from();
  if (!reset_archived_ && from < v_.log.end()) {
    const LogRecord& last = v_.log.at(v_.log.end() - 1);
    ArchiveTail archive{
        make_token(TokenKind::archive, 0), v_.log.at(from).first, last.mark.lsn, last.epoch, {}};
    for (RecordNo no = from; no < v_.log.end(); ++no)
      archive.parts.push_back(
          {v_.journal_offset(v_.log.at(no).pos), v_.log.at(no).total_blocks * block_size});
    archived_from_ = archive.first;
    cut_ = Cut::archiving;
    archiving_for_reset_ = true;
    v_.out.archives.push_back(std::move(archive));
    return;
  }
  reset();
}

void Secondary::on_reset_archived(int error) {
  cut_ = Cut::none;
  if (!reset_) {  // the primary has gone meanwhile, and maybe another one has begun
    if (begun_) cut_ = Cut::waiting_for_journal, try_cut();
    return;
  }
  RecordNo from = given_up_from();
  reset_archived_ = error == 0 && (from == v_.log.end() || archived_from_ <= v_.log.at(from).first);
  if (error == 0) return try_reset();
  Lsn last = v_.log.mark_before(from).lsn;
  end_discard(false, fmt::format("the journal cannot be archived ({}), and is not given up without that",
                                 errno_text(error)));
  drop_sync();
  refuse(fmt::format("the records beyond {} cannot be archived ({}), and are not given up without that",
                     last.v, errno_text(error)));
}

void Secondary::reset() {
  if (giving_up_)
    v_.out.notices.push_back(
        {true,
         fmt::format("the history here, up to LSN {}, is given up for that of replica {}: this replica "
                     "is Inconsistent until it has been filled from there",
                     v_.log.last_mark().lsn.v, primary_),
         NoticeKind::discarded, primary_});
  else
    v_.out.notices.push_back(
        {true,
         fmt::format("{} resync from replica {}: this replica is Inconsistent until it is finished",
                     reset_->whole ? "full" : "bitmap", primary_),
         NoticeKind::resync_begun, primary_});
  Superblock& sb = v_.sb;
  std::optional<LogPoint> base;
  if (!reset_->whole)
    base = v_.disk.syncing() ? v_.disk.base()
                             : LogPoint{v_.log.epoch_before(v_.log.committed_end()), v_.commit_lsn()};
  // What comes is marked for the others as it comes; what was marked before is right as long as it is of this
  // history.
  for (DirtyMap& d : v_.dirty)
    if (!history_holds(reset_->epochs, reset_->from.lsn, d.slot().since_epoch, d.slot().since.lsn))
      d.forget();
  for (Link& l : v_.links) l.covered_end = 0;
  // With all of the history here ends what stood against it; else with the source only.
  std::erase_if(sb.split_brains, [&](const SplitBrain& s) { return reset_->whole || s.with == primary_; });
  if (v_.home_end < v_.log.committed_end()) v_.distrusts_disk = true;
  for (RecordNo no = v_.log.first(); no < v_.log.end(); ++no) v_.release_memory(v_.log.at(no));
  v_.log.reset(reset_->from, reset_->from_epoch);
  v_.committed.clear();
  v_.home_end = v_.log.first();
  v_.recovered_end = {};  // of the log that was
  v_.disk.begin_sync(reset_->epoch, base);
  sb.tail_pos = v_.log.tail_pos();
  sb.tail = reset_->from;
  sb.tail_epoch = reset_->from_epoch;
  sb.epochs = reset_->epochs;
  sb.arbiter = v_.config.arbiter_place;
  sb.incarnation++;
  sb.cut_lsn = reset_->from.lsn;
  sb.cut_incarnation = sb.incarnation;
  cut_ = Cut::resetting;
  v_.write_superblock(Volume::for_reset);
}

void Secondary::on_reset_durable() {
  if (cut_ != Cut::resetting) return;
  cut_ = Cut::none;
  v_.hold_checkpoint = false;
  LogMark from = reset_->from;
  Epoch epoch = reset_->epoch;
  bool whole = reset_->whole;
  reset_.reset();
  reset_archived_ = false;
  if (giving_up_) return on_discard_durable();
  if (connection_ != ConnectionState::Matching || epoch != epoch_ || from != v_.log.last_mark()) return;
  begun_ = true;
  v_.out.sends.push_back(Send{primary_, SyncReady{epoch_, from, whole}});
  connected();
}

// Taken at once or not at all. If it waited, what is committed meanwhile, and may even be home, would be
// newer; whereas records that are older and still wait for room do no harm, since the last of them holds what
// this does.
void Secondary::handle(SyncData& m) {
  if (m.epoch != epoch_ || !begun_ || !v_.disk.inconsistent())
    return refuse("it sent resync data that nobody asked for");
  bool fits = m.seq > sync_last_ && std::all_of(m.extents.begin(), m.extents.end(), [&](const Extent& e) {
                return e.lba.v + e.blocks <= v_.sb.volume_blocks;
              });
  if (!fits) return refuse("it sent resync data out of order, or beyond the volume");
  sync_last_ = m.seq;
  if (v_.arena.free() < m.payload.size() / block_size + record_blocks_max) {  // records come first
    checkpointer_.request();
    v_.out.sends.push_back(Send{primary_, SyncAck{epoch_, m.seq, true}});
    return;
  }
  std::uint64_t serial = next_sync_serial();
  const std::byte* from = m.payload.data();
  for (const Extent& e : m.extents) {
    for (DirtyMap& d : v_.dirty) d.mark(e.lba, e.blocks);
    if (e.kind == ExtentKind::zeros) {
      v_.committed.put_zeros(e.lba, e.blocks, serial);
      continue;
    }
    for (std::uint32_t i = 0; i < e.blocks; ++i, from += block_size) put_synced(e.lba + i, from, serial);
  }
  // A round that is under way has its blocks already: the next one takes these.
  sync_flying_.push_back({m.seq, checkpointer_.rounds_begun() + 1});
}

void Secondary::handle(const SyncEnd& m) {
  if (m.epoch != epoch_ || !begun_ || !v_.disk.inconsistent())
    return refuse("it ended a resync that nobody began");
  sync_until_ = m.until;
  // A damaged log was committed further than it reaches: some of that may be in the data area, in part.
  if (const auto* damaged = v_.disk.damaged()) sync_until_ = std::max(m.until, damaged->until);
  // What was found equal may have been in no more than the disk's cache.
  checkpointer_.request_sync();
  sync_round_ = checkpointer_.rounds_begun() + 1;
}

// ---- checks
// --------------------------------------------------------------------------------------------------------

void Secondary::handle(SyncCheck& m) {
  if (m.epoch != epoch_ || !begun_ || !v_.disk.inconsistent())
    return refuse("it sent checks that nobody asked for");
  auto end = m.word * 64 + static_cast<std::uint64_t>(std::bit_width(m.mask));
  if (end > v_.sb.volume_blocks || checks_.size() >= checks_max)
    return refuse("it sent checks beyond the volume, or too many");
  // Some of it may have come in an earlier resync, whose marks were lost in a crash.
  for (DirtyMap& d : v_.dirty) d.mark(Lba{m.word * 64}, end - m.word * 64);
  checks_.push_back(std::move(m));
}

void Secondary::start_check() {
  if (checking_ || checks_.empty() || connection_ != ConnectionState::Connected || v_.failed) return;
  if (v_.read_arena.free() < 64) return;
  Checking& c = checking_.emplace();
  c.check = std::move(checks_.front());
  checks_.pop_front();
  read_check();
}

void Secondary::read_check() {
  Checking& c = *checking_;
  auto first = static_cast<unsigned>(std::countr_zero(c.check.mask)),
       end = static_cast<unsigned>(std::bit_width(c.check.mask));
  c.home_changes = v_.home_changes;
  c.unreadable = 0;
  for (unsigned i = first; i < end; ++i) {
    if (c.slots.size() < end - first) c.slots.push_back(v_.read_arena.take());
    Lba lba{c.check.word * 64 + i};
    bool begin = i == first || c.singly || !v_.home_map.follows(lba);
    if (begin)
      v_.out.home_reads.push_back({make_token(TokenKind::check_read, i), v_.home_map.at(lba), {}}),
          c.outstanding++;
    add_piece(v_.out.home_reads.back().pieces, v_.read_arena.data(c.slots[i - first]), block_size);
  }
}

// Which blocks of the check are not what the source has. One that cannot be read is not: what comes in its
// place is written over it. An equal one is written again where the disk is not trusted, and where something
// else had been written there: then it is equal by luck.
std::uint64_t Secondary::compare() {
  static constexpr std::array<std::byte, block_size> zeros{};
  const Checking& c = *checking_;
  auto first = static_cast<unsigned>(std::countr_zero(c.check.mask));
  bool room = v_.arena.free() >= 64 + record_blocks_max;
  std::uint64_t differ = 0, serial = 0;  // of what is written again
  std::size_t n = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (!(c.check.mask >> bit & 1)) continue;
    Lba lba{c.check.word * 64 + bit};
    auto found = v_.committed.find(lba);
    const std::byte* block = found.kind == BlockIndex::Kind::data ? v_.arena.data(found.slot)
                             : found.kind == BlockIndex::Kind::zeros
                                 ? zeros.data()
                                 : v_.read_arena.data(c.slots[bit - first]);
    bool on_its_way = found.kind != BlockIndex::Kind::absent;
    bool unreadable = !on_its_way && (c.unreadable >> bit & 1);
    bool equal = hash128({block, block_size}) == c.check.digests[n++] && !unreadable;
    if (unreadable) v_.counters.repaired_blocks++;
    bool again = equal && !on_its_way && (v_.distrusts_disk || !v_.digests.fits(lba, block));
    if (again && serial == 0) serial = next_sync_serial();
    if (!equal || (again && !room))
      differ |= std::uint64_t{1} << bit;
    else if (again)
      put_synced(lba, block, serial);
  }
  if (serial != 0) checkpointer_.request();
  return differ;
}

// Above all LSNs: no record's serial. Nor that of an earlier connection, which a checkpoint may be writing
// home.
std::uint64_t Secondary::next_sync_serial() {
  if (v_.committed.empty()) v_.committed_since = v_.now;
  return std::uint64_t{1} << 63 | ++sync_serial_;
}

void Secondary::put_synced(Lba lba, const std::byte* block, std::uint64_t serial) {
  Slot slot = v_.arena.take();
  std::memcpy(v_.arena.data(slot), block, block_size);
  v_.committed.put_data(lba, slot, serial);
  v_.arena.unref(slot);
}

void Secondary::on_check_read(std::uint64_t bit, int error) {
  TL_CHECK(checking_.has_value());
  Checking& c = *checking_;
  if (error != 0) c.unreadable |= std::uint64_t{1} << bit;
  if (--c.outstanding > 0) return;
  bool which = c.unreadable != 0 && !c.singly;
  c.singly = c.singly || which;
  if (!c.stale && (which || c.home_changes != v_.home_changes)) return read_check();
  if (!c.stale) v_.out.sends.push_back(Send{primary_, SyncDiffer{epoch_, c.check.seq, compare()}});
  for (Slot slot : c.slots) v_.read_arena.unref(slot);
  checking_.reset();
}

// ---- the end
// -------------------------------------------------------------------------------------------------------

void Secondary::handle(const SyncProgress& m) {
  if (m.epoch != epoch_ || !begun_) return refuse("it says how far a resync is that nobody began");
  sync_done_ = std::min(m.done, m.total);
  sync_total_ = m.total;
}

void Secondary::advance_sync() {
  while (!sync_flying_.empty() && sync_flying_.front().second <= checkpointer_.rounds_done()) {
    sync_durable_ = sync_flying_.front().first;
    sync_flying_.pop_front();
  }
  if (!sync_flying_.empty()) checkpointer_.request();
  if (!sync_until_ || !sync_flying_.empty() || clearing_ || v_.commit_lsn() < *sync_until_) return;
  if (checkpointer_.rounds_done() < sync_round_) return;
  v_.disk.finish();
  sync_until_.reset();
  clearing_ = true;
  v_.write_superblock(Volume::for_consistent);
}

void Secondary::on_consistent_durable() {
  clearing_ = false;
  v_.disk.finished();
  v_.out.notices.push_back(
      {false, fmt::format("resync is finished: this replica is consistent at {}", v_.commit_lsn().v),
       NoticeKind::resync_finished, primary_});
}

}  // namespace twinloft::repl::core
