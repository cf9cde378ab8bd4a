// The source of a resync: what a peer may lack goes to it within the stream of records. That is what its
// bitmap here says, or the whole volume where the bitmap does not reach back to it; then, and where an
// earlier resync was not finished, digests find out what has to be sent.
//
// A chunk is read from the data area. A block that the committed image has a newer version of is sent from
// there, or left out if the record that brought it reaches the peer on this very connection. Every other
// block is the newest committed version, since nothing left memory while it was being read (home_changes).
// Newer versions that are not committed do not matter: they may still be cut off, and if they are committed,
// the peer hears that after this.
//
//   offer() --SyncReady--> the peer streams, with a resync --all blocks are there--> SyncEnd
//                                                             --the peer is consistent--> over
//
// Where an earlier resync was not finished, and records reach back to the peer, resume() takes the place of
// the offer.
//
// How far a resync is, is in the peer's state (Peer::Resync). This class has the reads under way, and the
// pace.
#pragma once

#include <unordered_map>
#include <vector>

#include "awaiting_repair.h"
#include "term.h"
#include "twinloft/spool-repl/core/pace.h"

namespace twinloft::repl::core {

class ResyncSource {
 public:
  ResyncSource(Volume& volume, Repair& repair, Peers& peers, const Term& term);
  ResyncSource(const ResyncSource&) = delete;
  ResyncSource& operator=(const ResyncSource&) = delete;

  Pace& pace() { return pace_; }
  const Pace& pace() const { return pace_; }

  // The peer is Matching and gets OfferingResync. `common_end`: up to where the records here are the peer's
  // too, where that is known. Its own judgement begins there.
  void offer(Peer& peer, RecordNo common_end);
  // The peer is Streaming from `base` on, and says of itself that an earlier resync was not finished.
  void resume(Peer& peer, const NodeState& state, Lsn base);
  void handle(Peer& peer, const SyncReady& message);
  void handle(Peer& peer, const SyncDiffer& message);
  void handle(Peer& peer, const SyncAck& message);
  void peer_state(Peer& peer, const NodeState& state);
  void on_sync_read(std::uint64_t token_number, int error);
  bool on_repaired(const Repair::Finished& finished);  // false: no chunk waits for that

  // Call both with every event. True: judge() is due.
  bool advance_pace();
  void judge(const Pace::Waiting& waiting) { pace_.judge(waiting); }
  void pump();

  bool nothing_under_way() const { return reads_.empty() && repairing_.empty(); }
  std::size_t waiting_requests() const { return repairing_.size(); }
  std::optional<Instant> next_tick() const;
  void check_invariants() const;

 private:
  // Of the data area: from the chunk's first block to its last.
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
  Pace pace_;
  std::size_t turn_ = 0;  // which target is looked at first
  std::uint64_t next_op_ = 1;
  std::unordered_map<std::uint64_t, ChunkRead> reads_;
  AwaitingRepair<ChunkRead> repairing_;
};

}  // namespace twinloft::repl::core
