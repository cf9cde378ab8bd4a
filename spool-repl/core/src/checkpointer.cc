#include "checkpointer.h"

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

namespace {
constexpr std::size_t home_write_blocks_max = 64;    // 256 KiB
constexpr unsigned home_writes_least = 2;            // at a time
constexpr std::uint64_t no_number = 0;               // of writes of zeros, which have no entry in writes_
constexpr std::size_t release_blocks_hurried = 256;  // 1 MiB
constexpr unsigned digest_writes_max = 32;           // at a time
constexpr std::uint64_t zero_write_blocks_max = (64u << 20) / block_size;
}  // namespace

bool Checkpointer::nothing_to_do() const {
  return phase_ == Phase::idle && !sync_requested_ && v_.committed.empty() &&
         v_.home_end == v_.log.committed_end() && reachable_tail() == v_.log.first();
}

bool Checkpointer::due() const {
  bool blocks = !v_.committed.empty();
  bool tail = std::min(v_.log.committed_end(), v_.tail_bound()) > v_.log.first();
  // An epoch record has no blocks. A round only moves home_end past it.
  if (under_way() || sync_requested_ || (hurried() && v_.home_end < v_.log.committed_end())) return true;
  if (!blocks && !tail) return false;
  if (hurried()) return true;
  if (!blocks) return v_.log.used_bytes() > v_.log.ring_bytes() / 4;
  return pressure() > 0 || v_.now >= due_at();
}

Instant Checkpointer::due_at() const {
  return std::min(v_.committed_at + v_.config.checkpoint_idle, v_.committed_since + v_.config.checkpoint_age);
}

std::optional<Instant> Checkpointer::next_tick() const {
  if (phase_ != Phase::idle || v_.committed.empty() || v_.failed) return std::nullopt;
  return due_at();
}

// 0: at most a quarter of journal and arena is not home yet. 1: at least three quarters of one of them.
// Records that the journal keeps for other replicas are home already, but they fill the journal too. So a
// journal that is more than three quarters full also counts as 1.
double Checkpointer::pressure() const {
  auto share = [](std::uint64_t part, std::uint64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  double fill = std::max(share(v_.log.bytes_behind(v_.home_end), v_.log.ring_bytes()),
                         share(v_.arena.used(), v_.arena.size()));
  if (share(v_.log.used_bytes(), v_.log.ring_bytes()) > 0.75) return 1;
  return std::clamp((fill - 0.25) * 2, 0.0, 1.0);
}

// The smallest number that keeps up with the clients: flushes wait behind these writes in the disk's queue.
unsigned Checkpointer::writes_at_once() const {
  unsigned most = v_.config.home_writes_in_flight, least = std::min(most, home_writes_least);
  if (hurried()) return most;
  return least + static_cast<unsigned>(pressure() * (most - least));
}

void Checkpointer::advance() {
  if (v_.failed) return;
  if (phase_ == Phase::idle && !v_.hold_checkpoint && !v_.disk.source_pending() && due()) start();
  if (phase_ == Phase::writing) submit_writes();
  if (phase_ == Phase::idle && nothing_to_do()) requested_ = all_requested_ = false;
}

void Checkpointer::start() {
  phase_ = Phase::writing;
  portions_begun_++;
  RecordNo end = v_.log.committed_end();
  sync_this_round_ = false;
  if (!under_way()) {
    begun_++;
    requested_ = false;
    sync_this_round_ = std::exchange(sync_requested_, false);
  }
  target_ = end;
  items_.clear();
  zeros_.clear();
  next_item_ = next_zero_ = written_ = released_ = 0;
  take_items();
  take_zeros();
  v_.committed_since = v_.now;
  if ((items_.empty() && zeros_.empty()) || v_.commit_durable >= v_.log.mark_before(end).lsn) return;
  phase_ = Phase::committing;
  v_.write_superblock(Volume::for_commit);
}

void Checkpointer::take_items() {
  items_.reserve(v_.committed.data_blocks());
  for (const auto& [lba, entry] : v_.committed.data()) {
    v_.arena.ref(entry.slot);
    items_.push_back({Lba{lba}, entry.slot, entry.serial});
  }
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.lba < b.lba; });
}

void Checkpointer::take_zeros() {
  std::vector<BlockIndex::ZeroExtent> all;
  v_.committed.zeros_within(Lba{0}, v_.sb.volume_blocks, all);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.serial < b.serial; });
  std::uint64_t room = v_.config.zero_blocks_a_round;
  last_portion_ = true;
  for (const auto& z : all) {
    if (take_zeros_of(z, room)) continue;
    last_portion_ = false;
    target_ = std::min(target_, v_.log.end_upto(Lsn{z.serial - 1}));
    return;
  }
}

// False: a part remains for the next portion.
bool Checkpointer::take_zeros_of(const BlockIndex::ZeroExtent& z, std::uint64_t& room) {
  bool trusted = v_.digests_exact && !v_.distrusts_disk;
  bool joins = false;  // the next run may extend zeros_.back()
  for (std::uint64_t at = z.lba.v, end = at + z.blocks; at < end;) {
    DigestTable::Run run = trusted ? v_.digests.run_from(Lba{at}, end - at)
                                   : DigestTable::Run{end - at, false};
    bool known = run.zeros && run.blocks >= v_.config.known_zeros_min;
    std::uint64_t n = run.blocks;
    if (!known) {
      if (room == 0) return false;
      bool full = joins && zeros_.back().extent.blocks >= zero_write_blocks_max;
      joins = joins && !full && v_.home_map.follows(Lba{at});
      n = std::min({n, room, zero_write_blocks_max - (joins ? zeros_.back().extent.blocks : 0),
                    v_.home_map.run(Lba{at}, n)});
      room -= n;
    }
    if (joins && !known)
      zeros_.back().extent.blocks += n;
    else
      zeros_.push_back({{Lba{at}, n, z.serial}, known});
    joins = !known;
    at += n;
  }
  return true;
}

void Checkpointer::on_commit_durable() {
  TL_CHECK(phase_ == Phase::committing);
  phase_ = Phase::writing;
}

void Checkpointer::submit_writes() {
  unsigned at_once = writes_at_once();
  while (in_flight_ < at_once) {
    if (next_zero_ < zeros_.size()) {
      const auto& [z, known] = zeros_[next_zero_++];
      if (known) continue;
      v_.out.home_zeros.push_back(
          {make_token(TokenKind::home_write, no_number), v_.home_map.at(z.lba), z.blocks});
      v_.digests.put_zeros(z.lba, z.blocks);
    } else if (next_item_ < items_.size()) {
      HomeWrite write{make_token(TokenKind::home_write, first_write_ + writes_.size()),
                      v_.home_map.at(items_[next_item_].lba),
                      {}};
      std::uint64_t blocks = 0;
      do {
        add_piece(write.pieces, v_.arena.data(items_[next_item_].slot), block_size);
        v_.digests.put(items_[next_item_].lba, v_.arena.data(items_[next_item_].slot));
        ++next_item_;
      } while (++blocks < home_write_blocks_max && next_item_ < items_.size() &&
               items_[next_item_].lba == items_[next_item_ - 1].lba + 1 &&
               v_.home_map.follows(items_[next_item_].lba));
      v_.counters.home_blocks_written += blocks;
      writes_.push_back({next_item_, false});
      v_.out.home_writes.push_back(std::move(write));
    } else {
      break;
    }
    ++in_flight_;
  }
  if (in_flight_ == 0) start_sync();
}

// Releases the arena slots of written blocks. Reads find the content in the data area or the disk's cache,
// and after a crash the journal still has it. Each release may restart reads in flight, so blocks are
// released in portions. The portions are smaller while writers wait for room.
void Checkpointer::release_written() {
  std::size_t portion = v_.arena.size() / 16;
  if (requested_) portion = std::min(portion, release_blocks_hurried);
  if (next_item_ == items_.size() && writes_.empty()) portion = 1;
  if (written_ - released_ < portion) return;
  for (; released_ < written_; ++released_) {
    v_.committed.erase_data_if(items_[released_].lba, items_[released_].serial);
    v_.arena.unref(items_[released_].slot);
  }
  v_.home_changes++;
}

void Checkpointer::on_home_written(std::uint64_t number, int error) {
  TL_CHECK(in_flight_ > 0);
  --in_flight_;
  ++steps_done_;
  if (error != 0) v_.fail_device(fmt::format("the data area failed a write ({})", errno_text(error)));
  if (v_.failed || number == no_number) return;
  writes_[number - first_write_].done = true;
  for (; !writes_.empty() && writes_.front().done; ++first_write_) {
    written_ = writes_.front().end;
    writes_.pop_front();
  }
  release_written();
}

void Checkpointer::start_sync() {
  if (items_.empty() && zeros_.empty() && !sync_this_round_) {
    move_tail();
    return;
  }
  phase_ = Phase::syncing;
  v_.out.home_syncs.push_back({make_token(TokenKind::home_sync, 0)});
}

void Checkpointer::on_home_synced(int error) {
  TL_CHECK(phase_ == Phase::syncing);
  ++steps_done_;
  if (error != 0) {
    v_.fail_device(fmt::format("the data area failed a sync ({})", errno_text(error)));
    return;
  }
  move_tail();
}

// Starts to move the tail. Journal space is reusable only once the superblock with the new tail is durable.
void Checkpointer::move_tail() {
  v_.home_end = std::max(v_.home_end, target_);
  new_first_ = reachable_tail();
  // Blocks of a resync have no record in the log. Their marks and digests are written with the sync that ends
  // the resync, also if the tail does not move.
  if (new_first_ == v_.log.first() && !sync_this_round_) {
    finish();
    return;
  }
  v_.note_covered();
  phase_ = Phase::marking;
  write_bitmaps(DirtyMap::Pages::lacking);
  write_digests();
  if (in_flight_ == 0) store_tail();
}

void Checkpointer::write_digests() {
  for (DigestTable::Pages& p : v_.digests.take_changed(digest_writes_max))
    submit_marks({0, v_.sb.digest_offset + p.first * block_size, std::move(p.bytes)});
}

void Checkpointer::write_bitmaps(DirtyMap::Pages which) {
  std::vector<BitmapWrite> writes;
  for (DirtyMap& d : v_.dirty) d.write(which, v_.sb, writes);
  for (BitmapWrite& w : writes) submit_marks(std::move(w));
}

void Checkpointer::submit_marks(BitmapWrite write) {
  write.token = make_token(TokenKind::bitmap, 0);
  v_.out.bitmap_writes.push_back(std::move(write));
  ++in_flight_;
}

void Checkpointer::on_bitmap_written(int error) {
  TL_CHECK(in_flight_ > 0 && (phase_ == Phase::marking || phase_ == Phase::clearing));
  --in_flight_;
  ++steps_done_;
  if (error != 0)
    v_.fail_device(
        fmt::format("the journal failed a write of a bitmap or of digests ({})", errno_text(error)));
  // The next pages are written only when all of these are durable. Otherwise an older version of a page could
  // overwrite a newer version.
  if (in_flight_ > 0 || v_.failed) return;
  if (phase_ == Phase::marking) write_digests();
  if (in_flight_ > 0) return;
  if (phase_ == Phase::marking)
    store_tail();
  else
    finish();
}

void Checkpointer::store_tail() {
  phase_ = Phase::superblock;
  v_.sb.tail_pos = v_.log.pos_before(new_first_);
  v_.sb.tail = v_.log.mark_before(new_first_);
  v_.sb.tail_epoch = v_.log.epoch_before(new_first_);
  v_.write_superblock(Volume::for_tail);
}

void Checkpointer::on_tail_durable() {
  TL_CHECK(phase_ == Phase::superblock);
  v_.log.drop_before(new_first_);
  phase_ = Phase::clearing;
  write_bitmaps(DirtyMap::Pages::any_change);
  if (in_flight_ == 0) finish();
}

void Checkpointer::finish() {
  for (const auto& [z, known] : zeros_) v_.committed.erase_zeros_if(z.lba, z.blocks, z.serial);
  if (!zeros_.empty()) v_.home_changes++;
  items_.clear();
  zeros_.clear();
  phase_ = Phase::idle;
  v_.counters.checkpoints++;
  if (!last_portion_) return;
  done_ = begun_;
  portions_home_ = portions_begun_;
  v_.digests_exact = v_.digests_exact || !v_.distrusts_disk;
}

}  // namespace twinloft::repl::core
