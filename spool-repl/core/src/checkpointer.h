// The checkpointer: writes committed blocks home, syncs the data area, then moves the journal's tail.
//
//   idle -> committing -> writing -> syncing -> marking -> superblock -> clearing -> idle
//
// committing: writes a superblock with the commit point, before any committed block is written home.
//   Otherwise a start could cut off records whose blocks are already in the data area.
// marking: writes new marks of the bitmaps for the records that the tail will pass, and the digests of blocks
//   that were written home.
// clearing: writes bitmap pages whose marks were removed.
//
// Each round takes a snapshot of the committed image, which holds no block above the commit point. Newer
// versions of these blocks stay in the image for the next round. Zeros are written home in portions, oldest
// first. Each portion passes through all states, and the tail then moves up to the oldest remaining zeros.
#pragma once

#include <deque>
#include <vector>

#include "volume.h"

namespace twinloft::repl::core {

class Checkpointer {
 public:
  explicit Checkpointer(Volume& volume) : v_(volume) {}

  // Starts a round now. A caller that waits for room repeats the request, which keeps the round fast.
  void request() { requested_ = true; }
  void request_all() { all_requested_ = true; }  // fast rounds until nothing is left to do
  void advance();
  void on_home_written(std::uint64_t number, int error);
  void on_home_synced(int error);
  void on_commit_durable();
  void on_tail_durable();
  void on_bitmap_written(int error);
  void request_sync() { sync_requested_ = requested_ = true; }  // a round with a sync, even without writes
  std::optional<Instant> next_tick() const;
  bool nothing_to_do() const;
  bool idle() const { return phase_ == Phase::idle; }
  // A round writes home everything that the committed image held at its start, in one or more portions.
  std::uint64_t rounds_begun() const { return begun_; }
  std::uint64_t rounds_done() const { return done_; }
  // Content that is put into the committed image now is durable in the data area when portions_home() reaches
  // this number. A later portion of the present round may write it, so the next round may have no work.
  std::uint64_t next_portion() const { return portions_begun_ + 1; }
  std::uint64_t portions_home() const { return portions_home_; }
  std::uint64_t steps_done() const { return steps_done_; }  // operations of all rounds that have ended

 private:
  enum class Phase { idle, committing, writing, syncing, marking, superblock, clearing };
  struct Item {
    Lba lba;
    Slot slot;
    std::uint64_t serial;
  };
  bool due() const;
  // A range of zeros. `known`: the data area already has zeros there.
  struct Zeros {
    BlockIndex::ZeroExtent extent;
    bool known;
  };
  bool under_way() const { return begun_ != done_; }
  void take_items();
  void take_zeros();
  bool take_zeros_of(const BlockIndex::ZeroExtent& z, std::uint64_t& room);
  bool hurried() const { return requested_ || all_requested_; }
  Instant due_at() const;
  double pressure() const;
  unsigned writes_at_once() const;
  void start();
  void submit_writes();
  void release_written();
  void start_sync();
  void move_tail();
  void write_bitmaps(DirtyMap::Pages which);
  void write_digests();
  void submit_marks(BitmapWrite write);
  void store_tail();
  void finish();
  RecordNo reachable_tail() const { return std::min(v_.home_end, std::max(v_.tail_bound(), v_.log.first())); }

  Volume& v_;
  Phase phase_ = Phase::idle;
  bool requested_ = false, all_requested_ = false, sync_requested_ = false, sync_this_round_ = false;
  std::uint64_t begun_ = 0, done_ = 0, steps_done_ = 0;
  std::uint64_t portions_begun_ = 0, portions_home_ = 0;
  RecordNo target_ = 0, new_first_ = 0;
  bool last_portion_ = true;
  std::vector<Item> items_;
  std::vector<Zeros> zeros_;
  std::size_t next_item_ = 0, next_zero_ = 0;
  struct Write {
    std::size_t end;  // one past its last item
    bool done;
  };
  std::deque<Write> writes_;                // in flight, or done before an older write
  std::uint64_t first_write_ = 1;           // number of writes_.front()
  std::size_t written_ = 0, released_ = 0;  // items before these are in the data area, or released
  unsigned in_flight_ = 0;
};

}  // namespace twinloft::repl::core
