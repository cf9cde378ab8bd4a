// The target of a resync: gives up its own log, says on its disk that its data area means nothing, and takes content and
// records of the source as they come.
//
//   SyncBegin -> nothing under way -> own tail archived -> superblock (Inconsistent, empty log) -> SyncReady
//   SyncData  -> committed image -> home, by the checkpointer -> SyncAck
//   SyncEnd   -> committed up to `until`, all data home -> superblock (consistent)
#include <algorithm>

#include "secondary.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

// What must not be thrown away: anything that may have been acknowledged without the source.
std::string Secondary::objection(const SyncBegin& m) const {
  if (v_.inconsistent) return "";  // nothing here means anything
  Lsn last = v_.log.last_mark().lsn;
  if (last.v == 0 || v_.sb.epochs.empty()) return "";
  // How far the source's history holds ours: the newest epoch that both know, up to where the source's next one began.
  Lsn common;
  for (const EpochEntry& own : v_.sb.epochs) {
    if (own.start > last) continue;
    for (std::size_t i = 0; i < m.epochs.size(); ++i)
      if (m.epochs[i].epoch == own.epoch && m.epochs[i].start == own.start)
        common = i + 1 < m.epochs.size() ? Lsn{m.epochs[i + 1].start.v - 1} : m.from.lsn;
  }
  if (common >= last) return "";
  if (v_.commit_lsn() > m.from.lsn)
    return fmt::format("split brain: {} is committed here, and its history begins at {}: this replica is not overwritten",
                       v_.commit_lsn().v, m.from.lsn.v);
  // The source's table is full and begins after all that is known here: it has forgotten.
  bool forgotten = common.v == 0 && m.epochs.size() == superblock_epochs_max &&
                   m.epochs.front().epoch.counter > v_.sb.epochs.back().epoch.counter;
  bool member = (v_.recorded().in_sync & set_of(primary_)) != 0;
  if (forgotten && member) return "";
  bool forced = std::any_of(m.epochs.begin(), m.epochs.end(), [&](const EpochEntry& e) {
    return e.start > common && (e.flags & epoch_by_force);
  });
  auto next = std::find_if(m.epochs.begin(), m.epochs.end(), [&](const EpochEntry& e) { return e.start > common; });
  return split_brain({common, {}}, forced || common.v == 0, next == m.epochs.end() ? 0 : next->writer);
}

void Secondary::handle(const SyncBegin& m) {
  if (connection_ != ConnectionState::Matching || m.epoch != epoch_ || begun_ || reset_ || cut_ == Cut::archiving)
    return refuse("it began a resync at the wrong moment");
  if (std::string why = objection(m); !why.empty()) return refuse(std::move(why));
  reset_ = m;
  reset_archived_ = false;
  v_.hold_checkpoint = true;
  try_reset();
}

void Secondary::try_reset() {
  if (!reset_ || cut_ != Cut::none || v_.journal_in_flight > 0 || !checkpointer_.idle()) return;
  RecordNo from = v_.log.committed_end();
  if (!reset_archived_ && from < v_.log.end()) {
    const LogRecord& last = v_.log.at(v_.log.end() - 1);
    ArchiveTail archive{make_token(TokenKind::archive, 0), v_.log.at(from).first, last.mark.lsn, last.epoch, {}};
    for (RecordNo no = from; no < v_.log.end(); ++no)
      archive.parts.push_back({v_.journal_offset(v_.log.at(no).pos), v_.log.at(no).total_blocks * block_size});
    cut_ = Cut::archiving;
    archiving_for_reset_ = true;
    v_.out.archives.push_back(std::move(archive));
    return;
  }
  reset();
}

void Secondary::on_reset_archived(int error) {
  cut_ = Cut::none;
  if (!reset_) return;  // the primary has gone meanwhile
  reset_archived_ = error == 0;
  if (error == 0) return try_reset();
  Lsn last = v_.commit_lsn();
  drop_sync();
  refuse(fmt::format("the records beyond {} can not be archived (errno {}), and are not given up without that", last.v, error));
}

void Secondary::reset() {
  v_.out.notices.push_back({true, fmt::format("resync from replica {}: this replica is Inconsistent until it is finished",
                                              primary_), NoticeKind::resync_begun, primary_});
  for (RecordNo no = v_.log.first(); no < v_.log.end(); ++no) v_.release_memory(v_.log.at(no));
  v_.log.reset(reset_->from, reset_->from_epoch);
  v_.committed.clear();
  v_.home_end = v_.log.first();
  Superblock& sb = v_.sb;
  v_.inconsistent = true;
  sb.inconsistent_source = reset_->epoch;
  sb.inconsistent_until = Lsn{UINT64_MAX};
  sb.tail_pos = v_.log.tail_pos();
  sb.tail = reset_->from;
  sb.tail_epoch = reset_->from_epoch;
  sb.epochs = reset_->epochs;
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
  reset_.reset();
  reset_archived_ = false;
  if (connection_ != ConnectionState::Matching || epoch != epoch_ || from != v_.log.last_mark()) return;
  begun_ = true;
  v_.out.sends.push_back(Send{primary_, SyncReady{epoch_, from}});
  connected();
}

// Taken at once or not at all. If it waited, what is committed meanwhile, and may even be home, would be newer; whereas
// records that are older and still wait for room do no harm, since the last of them holds what this does.
void Secondary::handle(SyncData& m) {
  if (m.epoch != epoch_ || !begun_ || !v_.inconsistent)
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
  if (v_.committed.empty()) v_.committed_since = v_.now;
  // Above all LSNs: no record's serial. Nor that of an earlier connection, which a checkpoint may be writing home.
  std::uint64_t serial = std::uint64_t{1} << 63 | ++sync_serial_;
  const std::byte* from = m.payload.data();
  for (const Extent& e : m.extents) {
    sync_blocks_ += e.blocks;
    if (e.kind == ExtentKind::zeros) {
      v_.committed.put_zeros(e.lba, e.blocks, serial);
      continue;
    }
    for (std::uint32_t i = 0; i < e.blocks; ++i, from += block_size) {
      Slot slot = v_.arena.take();
      std::memcpy(v_.arena.data(slot), from, block_size);
      v_.committed.put_data(e.lba + i, slot, serial);
      v_.arena.unref(slot);
    }
  }
  // A round that is under way has its blocks already: the next one takes these.
  sync_flying_.push_back({m.seq, checkpointer_.rounds_begun() + 1});
}

void Secondary::handle(const SyncEnd& m) {
  if (m.epoch != epoch_ || !begun_ || !v_.inconsistent) return refuse("it ended a resync that nobody began");
  sync_until_ = m.until;
}

void Secondary::advance_sync() {
  while (!sync_flying_.empty() && sync_flying_.front().second <= checkpointer_.rounds_done()) {
    sync_durable_ = sync_flying_.front().first;
    sync_flying_.pop_front();
  }
  if (!sync_flying_.empty()) checkpointer_.request();
  if (!sync_until_ || !sync_flying_.empty() || clearing_ || v_.commit_lsn() < *sync_until_) return;
  v_.sb.inconsistent_source = {};
  v_.sb.inconsistent_until = {};
  sync_until_.reset();
  clearing_ = true;
  v_.write_superblock(Volume::for_consistent);
}

void Secondary::on_consistent_durable() {
  clearing_ = false;
  v_.inconsistent = false;
  v_.out.notices.push_back({false, fmt::format("resync is finished: this replica is consistent at {}", v_.commit_lsn().v),
                            NoticeKind::resync_finished, primary_});
}

}  // namespace twinloft::repl::core
