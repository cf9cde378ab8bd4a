// The checkpointer: writes committed blocks home, syncs the data area, then moves the journal's tail.
//
//   idle -> committing -> writing -> syncing -> marking -> superblock -> clearing -> idle
//
// committing: the superblock says up to where all is committed, before any of it is in the data area. A start
// that did not know that could take those records for such as may be cut off, and their blocks would stay.
// marking: the bitmaps' new marks, of what the tail is about to pass, and the digests of what was written
// home. clearing: marks that are gone.
//
// It takes a snapshot of the committed image, which by construction holds nothing above the commit point.
// What is overwritten while it works stays in the image for the next round. Zeros go home in portions, oldest
// first: the states above are passed once for each, and the tail moves up to the oldest zeros that are left.
#pragma once

#include <deque>
#include <vector>

#include "volume.h"

namespace twinloft::repl::core {

class Checkpointer {
 public:
  explicit Checkpointer(Volume& volume) : v_(volume) {}

  // A round now. Who waits for room asks again as long as he does, which is what makes it a fast one.
  void request() { requested_ = true; }
  void request_all() { all_requested_ = true; }  // and on, fast, until nothing is left to do
  void advance();
  void on_home_written(std::uint64_t number, int error);
  void on_home_synced(int error);
  void on_commit_durable();
  void on_tail_durable();
  void on_bitmap_written(int error);
  void request_sync() {
    sync_requested_ = requested_ = true;
  }  // a round that syncs, even with nothing to write
  std::optional<Instant> next_tick() const;
  bool nothing_to_do() const;
  bool idle() const { return phase_ == Phase::idle; }
  // A round writes home what the committed image held when it began, in one portion or several.
  std::uint64_t rounds_begun() const { return begun_; }
  std::uint64_t rounds_done() const { return done_; }
  // Content that comes into the committed image now is durable in the data area when portions_home() has
  // reached this number. It may be in a later portion of the round under way, which leaves nothing for the
  // next one.
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
  // A part of the volume that is all zeros. `known`: the data area holds zeros there already.
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
  RecordNo reachable_tail() const { return std::min(v_.home_end, std::max(v_.tail_limit, v_.log.first())); }

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
  std::deque<Write> writes_;                // under way, and those that have ended before an older one
  std::uint64_t first_write_ = 1;           // the number of the first of them
  std::size_t written_ = 0, released_ = 0;  // items: all before are in the data area, have left the arena
  unsigned in_flight_ = 0;
};

}  // namespace twinloft::repl::core
