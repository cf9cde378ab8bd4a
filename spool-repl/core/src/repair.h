// Repairs unreadable blocks of the data area, and blocks with wrong content (digest.h). Each block is read
// alone, fetched from another replica, and written again.
//
//   begin --> reading --error, or wrong--> choosing --no replica left--> lost
//                |                         |      ^
//            readable                      v      | no content, disconnected, or too late
//                |                       asking --+
//                v                         | content
//              done                        v
//                                       holding --(commit point reaches the answer's, and room)--> mended
//
// Each state leads to done when a commit has overwritten the block.
//
// Proof that the content is right. Let C(b, x) be the newest version of block b among the records up to x.
// The question is asked at commit point q. The committed image here has no b then, so the data area here
// should hold C(b, q). The answer is C(b, a), with a >= q, from a replica of the same history: only replicas
// with a flow of records are asked. It is used at a commit point u >= a, and only if no version of b was put
// into the committed image since the question. So no record of (q, u] writes b, and
// C(b, q) = C(b, a) = C(b, u).
//
// The content goes into the committed image. The next checkpoint writes it home and syncs it, and a failed
// write fails the device. It needs no record: after a power cut during the write, each sector has this
// content or is unreadable.
//
// Every wait ends:
//   1. reading has one read in flight, which the disk ends.
//   2. asking and holding have a deadline, which next_tick() names. They end earlier with the connection.
//   3. choosing ends within advance().
//   4. A block that has not begun waits for one of blocks_max places, which 1 to 3 free, or for a slot of the
//      read arena, which reads in flight free. A request that waits for a repair holds no slot.
//   5. A request that comes while a block is being fetched waits for at most one more round. It does not
//      prolong the wait of earlier requests.
//   6. give_up() ends all waits.
//   7. Each ticket ends once, and its end is taken in the same step.
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
  Epoch epoch;                   // its messages name this epoch
  bool in_sync = false;
  bool holds = false;  // the peer has everything committed, once it has caught up
};

class Repair {
 public:
  using Ticket = std::uint64_t;
  struct Finished {
    Ticket ticket;
    bool ok;  // each block is readable or in memory. false: a block is lost
  };
  static constexpr std::size_t blocks_max = 32;  // at a time

  Repair(Volume& volume, Checkpointer& checkpointer) : v_(volume), checkpointer_(checkpointer) {}

  Ticket begin(std::vector<Lba> blocks);
  // Begins a repair without a waiting request, after a short delay. The replica may get the content by then.
  void begin_later(Lba block);
  std::vector<Finished> take_finished() { return std::exchange(finished_, {}); }
  void give_up();

  void on_read(std::uint64_t token_number, int error);
  bool handle(ReplicaId from, FetchedBlock& message);  // false: not an answer to a question of this replica
  bool busy() const {
    return !jobs_.empty() || !later_.empty() || !blocks_.empty() || !finished_.empty() || news_.any();
  }
  bool idle() const { return jobs_.empty() && later_.empty() && blocks_.empty() && reads_.empty(); }
  void advance(std::span<const Stream> streams);
  std::optional<Instant> next_tick() const;
  void note_lost(Lba block);  // for a request after too many repairs

 private:
  struct Job {
    std::vector<Lba> todo;  // blocks not begun yet
    std::size_t open = 0;   // blocks under repair
    bool lost = false;
  };
  enum class State { reading, choosing, asking, holding };
  struct Block {
    State state = State::reading;
    bool wrong = false;           // readable, but with wrong content
    std::uint64_t read = 0;       // number of the read
    std::vector<Ticket> tickets;  // requests that wait
    std::vector<Ticket> late;  // requests that came after the read. They get another round before they fail
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
    std::uint64_t mended = 0, lost = 0, wrong = 0;  // wrong: mended blocks that had wrong content
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
  std::map<std::uint64_t, Reading> reads_;  // also of blocks whose repair has ended
  std::vector<Finished> finished_;
  Ticket last_ticket_ = 0;
  std::uint64_t last_read_ = 0, last_seq_ = 0;
  News news_;
  Instant quiet_until_;
};

}  // namespace twinloft::repl::core
