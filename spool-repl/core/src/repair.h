// Blocks of the data area that cannot be read, or are not what was written there (digest.h): found one by
// one, fetched from another replica, written again.
//
//   begin --> reading --error, or wrong--> choosing --nobody is left--> lost
//                |                         |      ^
//            readable                      v      | cannot, gone, too late
//                |                       asking --+
//                v                         | content
//              done                        v
//                                       holding --committed here as far as there, room in the arena--> mended
//
// and from everywhere to done, when the block was written by a commit meanwhile.
//
// The content is right. Let C(b, x) be the newest version of block b among the records up to x. The question
// was asked at commit point q, and the committed image here had no b then, so the data area here is to hold
// C(b, q). The answer is C(b, a), with a >= q, from a replica of the same history (only one that records flow
// to or from is asked). It is used at a commit point u >= a, and only if nothing was put into the committed
// image here for b since the question. So no record of (q, u] writes b, and C(b, q) = C(b, a) = C(b, u),
// whichever side was further when.
//
// It goes into the committed image, and from there home like everything else: the next checkpoint writes and
// syncs it, and a write that fails fails the device. No record stands behind it. None is needed: a power cut
// in the middle of the write leaves sectors of this very content, or unreadable ones.
//
// Every wait has an end:
//   1. reading has one read under way, which the disk ends;
//   2. asking and holding have a deadline, which next_tick() names, and end earlier when the connection does;
//   3. choosing ends within advance();
//   4. what has not begun waits for one of blocks_max places, which 1 to 3 free, or for a slot of the read
//   arena, which reads
//      under way free; a request that waits for a repair holds no slot meanwhile;
//   5. who comes while a block is asked for waits at most for another round: later ones do not prolong it for
//   those before;
//   6. give_up() ends all that somebody waits for;
//   7. each ticket ends once, and its end is taken in the step that brought it.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "checkpointer.h"
#include "volume.h"

namespace twinloft::repl::core {

// A connection on which records flow, in either direction.
struct Stream {
  ReplicaId peer = 0;
  std::uint64_t connection = 0;  // Link::connection
  Epoch epoch;                   // that its messages name
  bool in_sync = false;
  bool holds = false;  // all that is committed, at least when it has caught up
};

class Repair {
 public:
  using Ticket = std::uint64_t;
  struct Finished {
    Ticket ticket;
    bool ok;  // each of the blocks is readable, or its content in memory; else one of them is lost
  };
  static constexpr std::size_t blocks_max = 32;  // at a time

  Repair(Volume& volume, Checkpointer& checkpointer) : v_(volume), checkpointer_(checkpointer) {}

  Ticket begin(std::vector<Lba> blocks);
  // Nobody waits for it, so it begins a little later: its finder may be about to have the content.
  void begin_later(Lba block);
  std::vector<Finished> take_finished() { return std::exchange(finished_, {}); }
  void give_up();

  void on_read(std::uint64_t token_number, int error);
  bool handle(ReplicaId from, FetchedBlock& message);  // false: nobody asked that
  bool busy() const {
    return !jobs_.empty() || !later_.empty() || !blocks_.empty() || !finished_.empty() || news_.any();
  }
  bool idle() const { return jobs_.empty() && later_.empty() && blocks_.empty() && reads_.empty(); }
  void advance(std::span<const Stream> streams);
  std::optional<Instant> next_tick() const;
  void note_lost(Lba block);  // for a requester that has tried often enough

 private:
  struct Job {
    std::vector<Lba> todo;  // not begun
    std::size_t open = 0;   // begun
    bool lost = false;
  };
  enum class State { reading, choosing, asking, holding };
  struct Block {
    State state = State::reading;
    bool wrong = false;           // it can be read, and is not what was written there
    std::uint64_t read = 0;       // number of the read under way
    std::vector<Ticket> tickets;  // both empty: nobody waits
    std::vector<Ticket> late;  // came after the asking had begun: it is begun anew for them before they fail
    ReplicaSet tried = 0;
    ReplicaId peer = 0;  // asking, holding
    std::uint64_t connection = 0, seq = 0;
    Epoch epoch;
    Instant deadline;
    FetchedBlock answer;  // holding
  };
  struct Reading {
    Lba lba;
    Slot slot;
  };
  struct News {
    std::uint64_t mended = 0, lost = 0, wrong = 0;  // wrong: of the mended ones
    Lba first_mended, first_lost;
    ReplicaId from = 0;
    bool any() const { return mended + lost > 0; }
  };
  enum class End { readable, overwritten, mended, lost };

  void start_blocks();
  bool start(Lba lba, Ticket ticket, bool& begun);  // false: no room now
  std::optional<End> step(Lba lba, Block& block, std::span<const Stream> streams);
  std::optional<End> choose(Lba lba, Block& block, std::span<const Stream> streams);
  bool mend(Lba lba, Block& block);  // false: no room now
  bool is_right(Lba lba, const FetchedBlock& answer) const;
  void end(Lba lba, const Block& block, End end);
  void begin_anew(Lba lba, Block& block);
  void close(Ticket ticket, End end);
  void tell_news();

  Volume& v_;
  Checkpointer& checkpointer_;
  std::map<Ticket, Job> jobs_;
  struct Later {
    Lba lba;
    Instant at;
  };
  std::deque<Later> later_;
  std::map<Lba, Block> blocks_;
  std::map<std::uint64_t, Reading> reads_;  // also of blocks that have ended meanwhile
  std::vector<Finished> finished_;
  Ticket last_ticket_ = 0;
  std::uint64_t last_read_ = 0, last_seq_ = 0;
  News news_;
  Instant quiet_until_;
};

}  // namespace twinloft::repl::core
