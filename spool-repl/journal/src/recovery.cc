#include "twinloft/spool-repl/journal/recovery.h"

#include "bitmap_reader.h"
#include "content_check.h"
#include "digest_reader.h"
#include "replay.h"
#include "ring_reader.h"

#include <algorithm>
#include <optional>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/superblock_store.h"

namespace twinloft::repl::journal {

namespace {

class Scanner {
 public:
  Scanner(ports::BlockFile& journal, const Superblock& sb) : sb_(sb), reader_(journal, sb) {
    scan_.log.superblock = sb;
    scan_.log.home_map = home_map_of(sb);
    scan_.log.commit = std::max(sb.commit, sb.tail.lsn);
    pos_ = sb.tail_pos;
    last_ = sb.tail;
  }

  Result<Scan> run() {
    for (;;) {
      TL_TRY_ASSIGN(bool found, next());
      if (!found) break;
    }
    judge_hole();
    TL_TRY(read_uncommitted());
    return std::move(scan_);
  }

 private:
  // The next record is at pos_, or at the ring's beginning if it did not fit before the end.
  Result<bool> next() {
    if (pos_.v - sb_.tail_pos.v < sb_.ring_bytes) {
      TL_TRY_ASSIGN(bool here, take(pos_));
      if (here) return true;
    }
    JournalPos wrapped{(pos_.v / sb_.ring_bytes + 1) * sb_.ring_bytes};
    if (pos_.v % sb_.ring_bytes == 0 || wrapped.v - sb_.tail_pos.v >= sb_.ring_bytes) return false;
    JournalPos before = pos_;
    TL_TRY_ASSIGN(bool there, take(wrapped));
    if (there) gap_ = {before, wrapped}, unreadable_.reset();
    return there;
  }

  Result<bool> take(JournalPos pos) {
    auto read = read_record(reader_, sb_, pos, last_);
    if (!read && read.error().code == Errc::invalid) return std::unexpected(read.error());
    if (!read) {
      unreadable_ = read.error().message;
      return false;
    }
    std::optional<RecordAt>& found = *read;
    if (!found) return false;
    FrameHeader& frame = found->frame;
    Body& body = found->body;
    std::uint64_t bytes = std::uint64_t{frame.total_blocks} * block_size;
    if (pos.v + bytes - sb_.tail_pos.v > sb_.ring_bytes) return false;
    // The record was cut off, and is not overwritten yet. It must not come back.
    if (is_cut_off(sb_, frame, body)) return false;

    last_ = body.mark();
    pos_ = {pos.v + bytes};
    scan_.log.commit = std::max(scan_.log.commit, frame.commit_lsn);
    scan_.log.records.push_back({std::move(body), pos, frame.total_blocks, frame.meta_bytes, {}, {}});
    return true;
  }

  // Runs after the scan, which finds the first uncommitted record. Only uncommitted records keep their
  // content.
  Status read_uncommitted() {
    LogMark before = sb_.tail;
    for (StoredRecord& r : scan_.log.records) {
      LogMark mark = r.body.mark();
      if (mark.lsn > scan_.log.commit) {
        TL_TRY_ASSIGN(RecordAt found, read_again(r, before));
        r.meta.assign(found.meta.begin(), found.meta.end());
        r.payload.assign(found.payload.begin(), found.payload.end());
      }
      before = mark;
    }
    return {};
  }

  // The record was intact a moment ago. A failing sector may need several attempts, and may have the only
  // copy.
  Result<RecordAt> read_again(const StoredRecord& r, const LogMark& before) {
    std::string why = "another record is there now";
    for (int attempt = 0; attempt < read_attempts; ++attempt) {
      reader_.forget();
      auto found = read_record(reader_, sb_, r.pos, before);
      if (!found)
        why = found.error().message;
      else if (*found && (*found)->body.mark() == r.body.mark())
        return std::move(**found);
    }
    return fail(Errc::io, "the record at LSN {} (offset {}) was intact, but cannot be read again: {}",
                r.body.mark().lsn.v, sb_.ring_offset + r.pos.v % sb_.ring_bytes, why);
  }

  struct Claims {
    Lsn upto, commit;
    std::vector<EpochEntry> epochs;  // of the records; without a set: only data records of the epoch exist
  };
  void note_record(std::uint64_t at, const FrameHeader& frame, Claims& claims) {
    std::uint64_t blocks = std::uint64_t{meta_blocks_for(frame.meta_bytes)} * block_size;
    if (at + blocks > sb_.ring_bytes) return;
    auto bytes = reader_.read(at, blocks);
    if (!bytes) return;
    auto body = decode_body_meta(bytes->subspan(frame_header_bytes, frame.meta_bytes), sb_.volume,
                                 sb_.volume_blocks);
    if (!body || is_cut_off(sb_, frame, *body)) return;
    if (body->header.type == RecordType::epoch)
      claims.epochs.push_back(entry_of(body->epoch_change, body->header.first_lsn));
    else
      claims.epochs.push_back({body->header.epoch, body->header.first_lsn});
  }
  // The epochs of the chain, and those of the superblock whose records are lost. The superblock had each
  // epoch before any replica relied on it.
  void note_known(Claims& claims) const {
    claims.epochs.insert(claims.epochs.end(), sb_.epochs.begin(), sb_.epochs.end());
    claims.epochs.push_back(
        {scan_.log.records.empty() ? sb_.tail_epoch : scan_.log.records.back().body.header.epoch, last_.lsn});
    for (const StoredRecord& r : scan_.log.records)
      if (r.body.header.type == RecordType::epoch)
        claims.epochs.push_back(entry_of(r.body.epoch_change, r.body.header.first_lsn));
  }
  static std::optional<Epoch> newest_by(const std::vector<EpochEntry>& epochs, Lsn by) {
    std::optional<Epoch> newest;
    for (const EpochEntry& e : epochs)
      if (e.start <= by && e.epoch.counter > (newest ? newest->counter : 0)) newest = e.epoch;
    return newest;
  }
  // An epoch without a record and without an entry of the superblock never counted on this replica.
  static std::optional<EpochEntry> newest_known(const std::vector<EpochEntry>& epochs) {
    std::optional<EpochEntry> newest;
    for (const EpochEntry& e : epochs)
      if (e.in_sync != 0 && e.epoch.counter > (newest ? newest->epoch.counter : 0)) newest = e;
    return newest;
  }

  // Frames of this lap in blocks outside of the chain's records.
  void look_at(JournalPos from, JournalPos to, Claims& claims) {
    for (std::uint64_t p = from.v; p < to.v; p += block_size) {
      auto block = reader_.read(p % sb_.ring_bytes, block_size);
      if (!block) {
        scan_.leftover.push_back(sb_.ring_offset + p % sb_.ring_bytes);
        continue;
      }
      auto frame = decode_frame(*block, sb_.volume);
      if (!frame || frame->pos.v != p || frame->replica != sb_.replica) continue;
      Lsn upto = std::max(frame->durable_lsn, frame->commit_lsn);
      // Records that were cut off since were durable, and no longer count.
      if (frame->incarnation < sb_.cut_incarnation) upto = std::min(upto, sb_.cut_lsn);
      claims.upto = std::max(claims.upto, upto);
      claims.commit = std::max(claims.commit, std::min(upto, frame->commit_lsn));
      note_record(p % sb_.ring_bytes, *frame, claims);
      scan_.leftover.push_back(sb_.ring_offset + p % sb_.ring_bytes);
      scan_.torn_frames++;
    }
  }

  void judge_hole() {
    Claims claims{scan_.log.commit, scan_.log.commit, {}};
    look_at(gap_.first, gap_.second, claims);
    look_at(pos_, {sb_.tail_pos.v + sb_.ring_bytes}, claims);
    note_known(claims);
    auto& [upto, commit, epochs] = claims;
    std::optional<Epoch> epoch = newest_by(epochs, commit);
    std::optional<EpochEntry> newest = newest_known(epochs);
    std::uint64_t offset = sb_.ring_offset + pos_.v % sb_.ring_bytes;
    if (upto > last_.lsn)
      scan_.damage = Damage{
          last_.lsn,
          upto,
          commit,
          pos_,
          offset,
          epoch,
          newest,
          fmt::format("the journal is damaged after LSN {} (offset {}): records up to LSN {}, which were "
                      "durable, are missing",
                      last_.lsn.v, offset, upto.v)};
    else if (unreadable_)
      scan_.damage = Damage{last_.lsn,
                            last_.lsn + 1,
                            commit,
                            pos_,
                            offset,
                            epoch,
                            newest,
                            fmt::format("the journal cannot be read after LSN {} (offset {}): {}",
                                        last_.lsn.v, offset, *unreadable_)};
    scan_.log.commit = std::min(scan_.log.commit, last_.lsn);
  }

  static constexpr int read_attempts = 10;
  const Superblock& sb_;
  RingReader reader_;
  Scan scan_;
  JournalPos pos_;
  std::pair<JournalPos, JournalPos> gap_;  // before the ring's end, if a record did not fit
  LogMark last_;
  std::optional<std::string> unreadable_;  // the reason, if the scan ended at an unreadable place
};

// An unreadable or damaged page costs only time: all of its blocks count as dirty.
void load_bitmaps(ports::BlockFile& journal, RecoveredVolume& out) {
  const Superblock& sb = out.log.superblock;
  for (std::uint32_t slot = 0; slot < bitmap_slots; ++slot) {
    if (sb.dirty[slot].peer == 0 || !sb.dirty[slot].known) continue;
    ReadBitmap bitmap = read_bitmap(journal, sb, slot);
    out.log.dirty[slot] = std::move(bitmap.words);
    out.report.bitmap_pages_lost += bitmap.pages_lost;
  }
}

Status check_label(const Superblock& sb, ports::BlockFile& data) {
  std::uint64_t bytes = sb.volume_blocks * block_size;
  if (data.size_bytes() < bytes + (sb.flags & flag_data_label ? block_size : 0))
    return fail(Errc::conflict,
                "{}: {} bytes, but the volume has {}: this is not its data area, or it was truncated",
                data.name(), data.size_bytes(), bytes);
  if (!(sb.flags & flag_data_label)) return {};
  AlignedBuffer block(block_size);
  TL_TRY(data.read(bytes, block.span()));
  auto label = decode_data_label(block.span());
  if (!label)
    return fail(label.error().code, "{}: {}: this is not the volume's data area", data.name(),
                label.error().message);
  if (label->volume != sb.volume || label->replica != sb.replica || label->volume_blocks != sb.volume_blocks)
    return fail(Errc::conflict, "{}: belongs to volume {} replica {}, the journal to volume {} replica {}",
                data.name(), label->volume.text(), label->replica, sb.volume.text(), sb.replica);
  return {};
}

}  // namespace

Status check_data_area(const Superblock& superblock, ports::BlockFile& data) {
  return check_label(superblock, data);
}

Result<Scan> scan_journal(ports::BlockFile& journal, const Superblock& superblock) {
  if (journal.size_bytes() < superblock.ring_offset + superblock.ring_bytes)
    return fail(Errc::corrupt, "{}: shorter than its superblock says: it was truncated", journal.name());
  auto scan = Scanner(journal, superblock).run();
  if (!scan) return fail(scan.error().code, "{}: {}", journal.name(), scan.error().message);
  return scan;
}

namespace {

// Records after the damage are lost. Data area and journal have at least the history up to the commit point,
// and possibly some newer content of lost records.
void make_inconsistent(const Scan& scan, RecoveredLog& log) {
  DiskState& disk = log.superblock.disk;
  if (std::holds_alternative<disk_state::Syncing>(disk)) return;
  LogPoint base{log.superblock.tail_epoch, log.commit};
  for (const StoredRecord& r : log.records)
    if (r.body.mark().lsn <= log.commit) base.epoch = r.body.header.epoch;
  disk_state::Damaged found{scan.damage->commit, scan.damage->epoch, scan.damage->newest, base};
  // Writes that earlier damage or a new disk had lost are still missing.
  if (const auto* before = std::get_if<disk_state::Damaged>(&disk)) {
    if (before->until > found.until) found.until = before->until, found.of = before->of;
    if (before->newest && (!found.newest || before->newest->epoch.counter > found.newest->epoch.counter))
      found.newest = before->newest;
  }
  if (const auto* before = std::get_if<disk_state::Refilling>(&disk))
    if (before->until > found.until) found.until = before->until, found.of = before->reported_in;
  disk = found;
}

// The table is a cache of the epoch records. If a record is damaged later, the table still identifies the
// history.
void note_epochs(RecoveredLog& log) {
  for (const StoredRecord& r : log.records)
    if (r.body.header.type == RecordType::epoch)
      log.superblock.epochs.note(entry_of(r.body.epoch_change, r.body.header.first_lsn));
  // An epoch whose record was lost in a crash does not count: its counter must not be used for another
  // epoch's records.
  Lsn last = log.records.empty() ? log.superblock.tail.lsn : log.records.back().body.mark().lsn;
  log.superblock.epochs.cut_behind(last);
}

// The superblock records a single cut, and this start is a cut. So frames of an earlier cut are erased, above
// all if a record that did not fit before the ring's end replaces them. An unreadable sector becomes readable
// by a write.
Status erase(ports::BlockFile& journal, const std::vector<std::uint64_t>& frames) {
  if (frames.empty()) return {};
  AlignedBuffer zeros(block_size);
  for (std::uint64_t offset : frames) TL_TRY(journal.write(offset, zeros.span()));
  return journal.sync();
}

}  // namespace

Result<RecoveredVolume> recover(ports::BlockFile& journal, ports::BlockFile& data, const OnDamage& on_damage,
                                MutableByteSpan room) {
  TL_TRY_ASSIGN(LoadedSuperblock loaded, load_superblock(journal));
  TL_TRY(check_label(loaded.superblock, data));
  TL_TRY_ASSIGN(Scan scan, scan_journal(journal, loaded.superblock));
  ReadDigests digests = read_digests(journal, loaded.superblock);
  scan.log.digests = std::move(digests.table);
  if (!(loaded.superblock.flags & flag_data_label)) TL_TRY(check_content(scan.log, data));
  if (scan.damage) {
    if (!on_damage)
      return fail(Errc::corrupt, "{}: {}. Nothing was changed", journal.name(), scan.damage->text);
    TL_TRY(on_damage(*scan.damage));
  }
  RecoveredVolume out{std::move(scan.log), {}};
  out.report.digest_sectors_lost = digests.sectors_lost;
  TL_TRY_ASSIGN(out.report.blocks_replayed, replay(journal, data, out.log, room));
  out.report.superblock_repaired = loaded.repaired;
  out.report.records = out.log.records.size();
  out.report.torn_frames = scan.torn_frames;
  out.report.damage = scan.damage;
  if (scan.damage) make_inconsistent(scan, out.log);
  for (const StoredRecord& r : out.log.records)
    if (r.body.mark().lsn > out.log.commit) out.report.uncommitted++;
  Superblock& sb = out.log.superblock;
  sb.generation++;
  sb.incarnation++;
  sb.commit = out.log.commit;
  // Frames after the end are discarded permanently. Otherwise they would come back when a peer sends the lost
  // record again, which continues the chain into the old frames. They become void before they are erased,
  // since they prove the damage until the superblock says Inconsistent.
  sb.cut_lsn = out.log.records.empty() ? sb.tail.lsn : out.log.records.back().body.mark().lsn;
  sb.cut_incarnation = sb.incarnation;
  note_epochs(out.log);
  TL_TRY(store_superblock(journal, sb));
  TL_TRY(erase(journal, scan.leftover));
  load_bitmaps(journal, out);
  return out;
}

}  // namespace twinloft::repl::journal
