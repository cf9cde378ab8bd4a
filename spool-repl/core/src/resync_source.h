// The source of a resync: sends the blocks that a peer may lack, beside the records. These are the blocks of
// the peer's bitmap here, or the whole volume if the bitmap does not reach back far enough. For the whole
// volume, and after an unfinished resync, digests are compared first.
//
// A chunk is read from the data area. If the committed image has a newer version of a block, that version is
// sent. It is left out if its record reaches the peer on this connection. All other blocks are the newest
// committed versions, since no block left memory during the read (home_changes). Uncommitted versions do not
// matter: they may still be cut off, and the peer learns of a commit after this content.
//
//   offer() --SyncReady--> the peer streams, with a resync --all blocks are there--> SyncEnd
//                                                             --the peer is consistent--> finished
//
// After an unfinished resync, resume() replaces the offer if records alone can continue the peer's log. The
// progress of a resync is in Peer::Resync. This class has the reads in flight, and the pace.
#pragma once

#include <unordered_map>
#include <vector>

#include "awaiting_repair.h"
#include "send_room.h"
#include "term.h"
#include "twinloft/spool-repl/core/pace.h"

namespace twinloft::repl::core {

class ResyncSource {
 public:
  ResyncSource(Volume& volume, Repair& repair, Peers& peers, const Term& term, const SendRoom& room);
  ResyncSource(const ResyncSource&) = delete;
  ResyncSource& operator=(const ResyncSource&) = delete;

  Pace& pace() { return pace_; }
  const Pace& pace() const { return pace_; }

  // Moves the peer from Matching to OfferingResync. `common_end`: one past the last common record, 0 if
  // unknown. The peer judges its records behind it.
  void offer(Peer& peer, RecordNo common_end);
  // The peer is Streaming from `base` on, and has an unfinished resync.
  void resume(Peer& peer, const NodeState& state, Lsn base);
  void handle(Peer& peer, const SyncReady& message);
  void handle(Peer& peer, const SyncDiffer& message);
  void handle(Peer& peer, const SyncAck& message);
  void peer_state(Peer& peer, const NodeState& state);
  void on_sync_read(std::uint64_t token_number, int error);
  bool on_repaired(const Repair::Finished& finished);  // false: no chunk waits for this repair

  // Call both with every event. True: judge() is due.
  bool advance_pace();
  void judge(const Pace::Waiting& waiting) { pace_.judge(waiting); }
  void pump();

  bool nothing_under_way() const { return reads_.empty() && repairing_.empty(); }
  std::size_t waiting_requests() const { return repairing_.size(); }
  std::optional<Instant> next_tick() const;
  void check_invariants() const;

 private:
  // A read of the data area, from the chunk's first block to its last.
  struct ChunkRead {
    ReplicaId peer;
    std::uint64_t connection_no;
    Peer::Chunk chunk;
    bool check;
    std::vector<Slot> slots;
    std::uint64_t home_changes;
    unsigned outstanding = 0;
    bool failed = false;
    unsigned& repaired() { return chunk.repairs; }
  };
  void start(Peer& peer, Lsn base, bool whole, bool compare);
  void choose_blocks(Peer& peer, Peer::Resync& resync);
  bool vouches(const NodeState& state) const;
  bool bitmap_reaches(const Peer& peer, Lsn content) const;
  void begin_filling(Peer& peer);
  void pump(Peer& peer);
  void read_chunk(Peer& peer, Peer::Chunk chunk, bool check);
  void end_chunk(ChunkRead read);
  bool holds_wrong(const ChunkRead& read) const;
  void send_chunk(Peer& peer, const ChunkRead& read);
  void send_check(Peer& peer, const ChunkRead& read);
  const std::byte* chunk_block(const Peer& peer, const ChunkRead& read, unsigned bit) const;
  void peer_is_consistent(Peer& peer);
  bool wanted(const ChunkRead& read) const;
  void repair_chunk(ChunkRead read);
  void after_repair(const ChunkRead& read, bool ok);

  Volume& v_;
  Peers& peers_;
  const Term& term_;
  const SendRoom& room_;
  Pace pace_;
  std::size_t turn_ = 0;  // the first peer of the next pump()
  std::uint64_t next_op_ = 1;
  std::unordered_map<std::uint64_t, ChunkRead> reads_;
  AwaitingRepair<ChunkRead> repairing_;
};

}  // namespace twinloft::repl::core
