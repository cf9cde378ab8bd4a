// The primary: takes the clients' requests, seals batches into records, sends them to the peers, and
// acknowledges.
//
// A peer goes through
//
//   Connecting --PeerUp--> Matching --last common record found--> Connected --PeerDown--> Connecting
//        ^                    |                                        |
//        +---- PeerDown ------+------ histories do not fit ----> StandAlone (until it connects anew)
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "checkpointer.h"
#include "open_batch.h"
#include "repair.h"
#include "twinloft/spool-repl/core/pace.h"
#include "volume.h"

namespace twinloft::repl::core {

// Membership. `in_sync_` is the set of the newest epoch record; an acknowledgement needs everyone in
// required(): that set, members that are being added, and, until the newest epoch record is durable on the
// members of its own set, the members of the set before. A change of the set is granted by the arbiter first
// (with an unknown outcome nothing changes here, and the same change is asked for again), then it is a
// record.
class Primary {
 public:
  Primary(Volume& volume, Checkpointer& checkpointer, Repair& repair);
  ~Primary() { pending_.clear(); }
  Primary(const Primary&) = delete;
  Primary& operator=(const Primary&) = delete;

  // Promotion into this epoch, as a record of the log. `value`: what the arbiter holds, where there is one.
  // EpochFlags.
  void start(const Epoch& epoch, ReplicaSet in_sync, std::optional<EpochValue> value, std::uint32_t flags);
  void on_arbiter(const ArbiterAnswer& answer);
  // Continue without the members that are away (manual arbiter, forced by the operator).
  bool go_on_alone();  // false: no replica that is needed is away
  void refuse_other(ReplicaId id, std::string reason, bool split_brain);  // another primary
  void demote();                                                          // no request comes any more
  void stay() { demoting_ = false; }
  bool may_step_down() const;  // demoted or lost, and nothing is under way
  bool lost() const { return lost_; }
  void lose(std::string reason);  // another primary has taken over, or may have
  const Epoch& epoch() const { return epoch_; }
  void submit(const ClientRequest& request);
  void on_client_read(std::uint64_t token_number, int error);
  void on_fill_read(std::uint64_t token_number, int error);
  void on_sync_read(std::uint64_t token_number, int error);
  std::vector<Stream> streams() const;
  void on_repaired(const std::vector<Repair::Finished>& finished);
  void peer_state(ReplicaId id, const NodeState& state);
  void on_journal_read(std::uint64_t token_number, int error, std::vector<std::byte> bytes);
  void peer_up(ReplicaId id);
  void peer_down(ReplicaId id);
  void peer_input(ReplicaId id, PeerMessage message);
  void advance();
  void flush_messages();
  std::optional<Instant> next_tick() const;
  void fill_status(VolumeStatus& status) const;
  bool settled() const;
  void check_invariants() const;

 private:
  struct Peer {
    PeerConfig config;
    ConnectionState connection = ConnectionState::Connecting;
    std::uint64_t connection_no = 0;
    Epoch epoch;  // as this node named it when the connection began; names all messages of the connection
    std::optional<MatchState> match;  // its answer on this connection
    bool match_again = false;         // looked at again when the record of the newest epoch is durable here
    bool adding = false;              // counts in every acknowledgement, and is to become a member
    RecordNo add_barrier = 0;  // durable there up to here, it holds all that was acknowledged without it
    RecordNo due_end = 0;  // what had been sent to it when this was looked at last; 0: nothing is waited for
    Instant due_since;     // and when that was: it is to be durable there within slow_peer
    std::uint64_t filled = 0;  // while it is being filled: how far that was then
    RecordNo begun_at = 0;     // it has what comes before, says its log
    // Resync: the blocks that it may lack go to it in the stream of records, 64 at a time: one word of the
    // bitmap.
    struct Chunk {
      std::uint64_t word = 0, mask = 0;
      unsigned repairs = 0;  // so far; then only what is needed is read, and not the blocks between
    };
    struct Sync {
      // Not before everything is committed here that the peer may have written home already: it must not get
      // older content.
      RecordNo not_before = 0;
      Lsn base;                            // records behind this one reach the peer on this connection
      std::vector<std::uint64_t> todo;     // what was not looked at yet
      std::uint64_t next = 0;              // word of it
      std::uint64_t total = 0, done = 0;   // blocks
      bool whole = true, nothing = false;  // nothing: the records that follow are all that it lacks
      bool chosen = false;                 // todo is filled
      bool compare = false;                // digests first: much of it may be there already
      std::uint64_t checks = 0;            // sent
      std::deque<Chunk> checking;          // those without an answer
      std::uint64_t seq = 0, acked = 0;    // messages sent, and known to be in its data area
      std::uint64_t acks = 0;              // how often it has told that: also that its disk goes on
      struct Flying {
        std::uint64_t seq, bytes;
        Chunk chunk;
      };
      std::deque<Flying> flying;  // those between
      std::vector<Chunk> again;   // found to differ, or the peer had no room for it
      Instant pause_until;
      bool declined = false;  // the last answer to data was that: it is to be sent again
      std::uint64_t flying_bytes = 0;
      unsigned reads = 0;
      bool end_sent = false;
      std::optional<std::uint64_t> told;  // how far it is, as the target was told
    };
    std::optional<Sync> sync;
    RecordNo refill = 0;  // it had lost what it had acknowledged: it holds everything again when durable up
                          // to here
    // A resync into it was begun, on this connection or an earlier one, and it has not said that it is
    // consistent: its acks tell of the records that came meanwhile, and of nothing before them.
    bool incomplete = false;
    bool filling() const { return incomplete || refill > durable_end; }
    bool sync_whole = true, sync_compare = true;  // as SyncBegin offered
    RecordNo sync_hold = 0;  // SyncBegin named the tail before this record: it stays until the peer answers
    RecordNo sent_end = 0, received_end = 0, durable_end = 0;  // 0: not known since this process started
    bool reading = false;  // a record for it is being read from the journal
    // Search for the last common record: candidates low..high, each meaning "everything before this number".
    RecordNo low = 0, high = 0, probing = 0;
    LogMark probe_mark;
    bool low_known = false;
    Lsn peer_commit, peer_last;
    LogMark commit_sent;
    std::string why;
  };

  struct ReadRequest {
    ClientRequest request;
    Instant since;         // when it came
    unsigned repairs = 0;  // so far
    unsigned& repaired() { return repairs; }
  };
  struct Read {
    struct Run {
      Lba lba;
      std::uint64_t blocks;
      std::vector<Slot> slots;  // empty: read straight into the client's memory
    };
    ReadRequest request;
    std::vector<Run> runs;
    unsigned outstanding = 0;
    std::uint64_t home_changes = 0;  // Volume::home_changes when it began
    std::vector<Lba> unreadable;     // all blocks of the runs that failed, and what is not what was written
                                     // there
    bool stale = false;              // something that does not fit has changed meanwhile
  };

  // A write-like request. The blocks at its edges that it covers in part need their old content: `fills`.
  struct Write {
    struct Fill {
      Lba lba;
      Slot slot = 0;
    };
    ClientRequest request;
    std::vector<Fill> fills;
    unsigned outstanding = 0;
    std::uint64_t home_changes = 0;  // Volume::home_changes when the fills were read
    unsigned repairs = 0;            // so far
    std::vector<Lba> unreadable;
    unsigned& repaired() { return repairs; }
  };

  // Of the data area, for a resync: from the chunk's first block to its last.
  struct SyncRead {
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

  // membership.cc
  static constexpr Duration suspension_news_after = std::chrono::milliseconds(500);
  bool needs_us(const Peer& peer) const;
  bool policy_leaves_out(const Peer& peer) const;
  bool may_leave_out(const Peer& peer) const;
  bool required(ReplicaId id) const;
  RecordNo durable_on(ReplicaSet set) const;  // one past the last record that is durable on all of them
  void consider_change();
  void start_change(ReplicaSet set, bool by_force = false, std::uint64_t after = 0);
  void ask_arbiter();
  void ask_whether_granted(std::uint64_t newer);
  void lose_to(const ArbiterAnswer& answer);
  void apply_change();
  bool may_be_closed(const Peer& peer) const;
  std::uint64_t backlog(const Peer& peer) const;
  void close_slow();
  void watch(Peer& peer);
  void watch_filling(Peer& peer);
  void bound_suspension();
  void tell_suspension();
  std::string waits_for() const;
  bool has_lost_peer() const;

  // primary.cc: log, peers, acknowledgements
  void begin_epoch(const Epoch& epoch, ReplicaSet in_sync, std::uint32_t flags);
  EpochTable epochs() const;
  bool lossy_behind(RecordNo end) const;
  Lsn held_by(const Peer& peer) const;
  void log_epoch();
  void maybe_seal();
  bool try_seal();
  void advance_acks();
  void pump(Peer& peer);
  RecordNo acked_end() const;
  bool suspended() const;
  Peer* find_peer(ReplicaId id);
  void refuse(Peer& peer, std::string reason, bool split_brain = false);
  void handle(Peer& peer, const MatchState& message);
  void handle(Peer& peer, const ProbeReply& message);
  void handle(Peer& peer, const Ack& message);
  void handle(Peer& peer, const Refuse& message);
  void probe_next(Peer& peer);
  bool epoch_in_flight() const { return epoch_logged_ && v_.log.durable_end() < epoch_end_; }
  bool waits_for_epoch(Peer& peer);
  void match_those_that_wait();
  void begin(Peer& peer, RecordNo common_end);
  void journal_is_damaged(Peer& peer, const std::string& how);
  void update_tail_limit();

  // resync.cc: the source's side
  void begin_resync(Peer& peer, RecordNo common_end = 0);
  void begin_filling(Peer& peer);
  void pump_sync(Peer& peer);
  void advance_pace();
  void pump_syncs();
  void start_sync(Peer& peer, Lsn base, bool whole, bool compare);
  void choose_blocks(Peer& peer);
  bool vouches(const NodeState& state) const;
  bool bitmap_reaches(const Peer& peer, Lsn content) const;
  void read_chunk(Peer& peer, Peer::Chunk chunk, bool check);
  void end_chunk(SyncRead read);
  bool holds_wrong(const SyncRead& read) const;
  void send_chunk(Peer& peer, const SyncRead& read);
  void send_check(Peer& peer, const SyncRead& read);
  const std::byte* chunk_block(const Peer& peer, const SyncRead& read, unsigned bit) const;
  void handle(Peer& peer, const SyncDiffer& m);
  void handle(Peer& peer, const SyncReady& message);
  void handle(Peer& peer, const SyncAck& message);
  void peer_is_consistent(ReplicaId id);

  // primary_io.cc: requests
  BlockIndex::Found newest(Lba lba) const;
  void complete(const ClientRequest& request, int error);
  void submit_read(const ClientRequest& request);
  void answer_read(const ReadRequest& request);
  void check_run(Read& read, const Read::Run& run);
  bool try_read(const ReadRequest& request);
  void submit_flush(const ClientRequest& request);
  bool try_write(Write& write);
  enum class FillState { none_needed, waiting, no_memory };
  FillState start_fills(Write& write);
  void drop_fills(Write& write);
  void apply(Write& write);
  void put_block(Lba lba, std::uint32_t from, std::uint32_t bytes, const std::byte* data, const Write& write);
  void wait_durable(std::uint64_t serial, const ClientRequest& request);
  void retry_stalled();
  void fail_everything();

  // primary_repair.cc: requests that came upon blocks which cannot be read
  static constexpr unsigned repairs_max = 4;  // of one request, which may come upon more while it is tried
                                              // again
  using Repairing = std::variant<ReadRequest, Write, SyncRead>;
  void repair(Repairing what, std::vector<Lba> blocks);
  void repair_chunk(SyncRead read);
  bool wanted(const SyncRead& read);
  void after_repair(ReadRequest& what, bool ok);
  void after_repair(Write& what, bool ok);
  void after_repair(SyncRead& what, bool ok);

  Volume& v_;
  Checkpointer& checkpointer_;
  Epoch epoch_;
  ReplicaSet in_sync_ = 0;  // of epoch_
  ReplicaSet before_ = 0;   // set before epoch_, while epoch_'s record is not durable on in_sync_
  std::uint32_t epoch_flags_ = 0;
  RecordNo epoch_end_ = 0;    // one past epoch_'s record
  RecordNo promoted_at_ = 0;  // one past what was in the log before this primary's first record
  bool first_ever_ = false;   // there was no record before
  bool epoch_logged_ = false;
  std::optional<EpochValue> value_;  // the arbiter's, as far as known here
  struct Change {
    EpochValue desired;
    std::optional<Instant> ask_again;  // the outcome is unknown
  };
  std::optional<Change> change_;
  std::uint64_t arbiter_token_ = 0;       // of the newest question
  std::optional<std::uint64_t> doubted_;  // the arbiter is asked whether this one still counts, since
                                          // somebody holds that epoch
  std::optional<Instant> waiting_since_;  // suspended, and somebody waits
  std::optional<Instant> suspended_since_;
  bool suspension_told_ = false;
  bool forced_alone_ = false, demoting_ = false, lost_ = false;
  std::vector<Peer> peers_;

  BlockIndex pending_;  // newest content that is not committed; serial = batch serial
  OpenBatch open_;
  std::uint64_t open_serial_ = 1;
  bool want_seal_ = false;
  Pace pace_;                // of resyncs
  Instant suspended_until_;  // while it was, nobody could be answered
  std::size_t turn_ = 0;     // which target of a resync is looked at first

  std::uint64_t acked_serial_ = 0;
  struct Waiter {
    std::uint64_t serial;
    std::uint64_t id;
    Instant since;
  };
  std::deque<Waiter> waiters_;        // by serial
  std::deque<Write> stalled_writes_;  // in order of arrival
  std::deque<ReadRequest> stalled_reads_;
  std::uint64_t next_op_ = 1;
  std::unordered_map<std::uint64_t, Read> reads_;
  std::unordered_map<std::uint64_t, Write> filling_;
  std::unordered_map<std::uint64_t, SyncRead> sync_reads_;
  Repair& repair_;
  std::map<Repair::Ticket, Repairing> repairing_;
};

}  // namespace twinloft::repl::core
