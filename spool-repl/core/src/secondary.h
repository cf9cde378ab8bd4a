// The secondary: takes the primary's records, journals them, and writes home what the primary says is
// committed.
//
//   Connecting --PeerUp--> Matching --Begin, tail cut--> Connected --PeerDown--> Connecting
#pragma once

#include <deque>
#include <optional>
#include <variant>

#include "checkpointer.h"
#include "repair.h"
#include "volume.h"

namespace twinloft::repl::core {

inline constexpr const char* just_ending = "a resync into this replica is just ending";

class Secondary {
 public:
  Secondary(Volume& volume, Checkpointer& checkpointer);

  void submit(const ClientRequest& request);  // a secondary serves nobody: EROFS
  void peer_up(ReplicaId) {}                  // which of the others is primary shows when one asks to match
  void peer_down(ReplicaId id);
  void peer_input(ReplicaId id, PeerMessage message);
  void peer_state(ReplicaId id, const NodeState& state);
  void on_archived(int error);
  void on_cut_durable();
  void on_erased(int error);
  void on_reset_durable();
  void on_consistent_durable();
  void on_check_read(std::uint64_t token_number, int error);
  std::vector<Stream> streams() const;
  void discard(const Discard& command);
  void end_discard(bool ok, std::string text);  // answers the command, if there is one
  bool discards() const { return discard_.has_value(); }
  std::optional<Instant> next_tick() const;
  bool follows() const { return primary_ != 0 && connection_ != ConnectionState::StandAlone; }
  void advance();
  void flush_messages();
  void fill_status(VolumeStatus& status) const;
  bool settled() const;
  void check_invariants() const;

 private:
  void match(ReplicaId id, const MatchRequest& message);
  void answer_match();
  void forget_primary();
  void handle(const Probe& message);
  void handle(const Begin& message);
  void handle(RecordMessage& message);
  void handle(const Commit& message);
  void handle(const Refuse& message);
  void refuse(std::string reason, bool split_brain = false);
  void note_refusal(const std::string& reason, bool split_brain);
  void note_covered(RecordNo end);
  void take_backlog();
  bool take_record(RecordMessage& message);  // false: no room now
  // discard.cc
  void bound_discard();
  const SplitBrain* rival() const;
  std::string doubt_of_winner() const;
  std::string nothing_in_common(ReplicaId with) const;
  bool may_give_up() const;
  void begin_discard(const MatchRequest& message);
  void on_discard_durable();
  // resync_target.cc
  void handle(SyncBegin& message);
  void handle(SyncData& message);
  void handle(const SyncEnd& message);
  void handle(const SyncProgress& message);
  void handle(SyncCheck& message);
  bool vouches(const SyncBegin& message) const;
  bool holds_source(std::span<const EpochEntry> epochs) const;
  std::string note_source(const Begin& m);
  bool settle_base();
  void start_check();
  void read_check();
  std::uint64_t compare();
  std::uint64_t next_sync_serial();
  void put_synced(Lba lba, const std::byte* block, std::uint64_t serial);
  RecordNo given_up_from() const;
  void try_reset();
  void reset();
  bool take_data(const SyncData& message);  // false: no room now
  void advance_sync();
  void drop_sync();
  void flush_sync_acks();
  void on_reset_archived(int error);
  void try_cut();
  void finish_cut();
  void erase_cut();
  void connected();

  Volume& v_;
  Checkpointer& checkpointer_;
  ReplicaId primary_ = 0;  // the peer that is connected as primary, 0: none
  ConnectionState connection_ = ConnectionState::Connecting;
  Epoch epoch_;  // of that primary
  std::string why_;
  ReplicaId why_of_ = 0;
  Lsn common_;  // the newest record that both are known to have, of the last matching
  // Begin was received and the tail behind `cut_to_` goes: first the journal writes under way end, then the
  // what goes is archived, then the superblock that makes old frames void is durable, then they are erased,
  // then records are taken.
  enum class Cut {
    none,
    waiting_for_journal,
    archiving,
    waiting_for_superblock,
    erasing,
    resetting
  } cut_ = Cut::none;
  LogMark cut_to_;
  EpochEntry cut_for_;                   // the newest one of whom it is cut for
  std::vector<JournalPos> cut_records_;  // still to be erased
  unsigned erasing_ = 0;                 // under way
  bool begun_ = false;                   // on this connection: records and commit points may come
  std::deque<RecordMessage> backlog_;    // bounded by the primary's send window, and by what is taken from a
                                         // broken one
  std::size_t backlog_bytes_ = 0;
  std::optional<SyncBegin> reset_;  // asked for: done as soon as nothing is under way
  struct Discarding {
    Token command;
    ReplicaId winner;
    bool force;
    Instant deadline;  // for the winner to connect
  };
  std::optional<Discarding> discard_;
  bool giving_up_ = false;  // what reset_ asks for is that, and not the beginning of a resync
  bool reset_archived_ = false;
  Lsn archived_from_;                 // of the archive for a cut
  bool archiving_for_reset_ = false;  // and not for a cut
  // Resync data that is not known to be durable in the data area: number, and the checkpoint round that
  // brings it there.
  std::deque<std::pair<std::uint64_t, std::uint64_t>> sync_flying_;
  std::uint64_t sync_durable_ = 0, sync_acked_ = 0, sync_last_ = 0;
  Instant told_at_;               // an acknowledgement of resync data was sent last
  std::uint64_t told_steps_ = 0;  // Checkpointer::steps_done() then
  std::optional<Instant> tell_at() const;
  std::uint64_t sync_done_ = 0, sync_total_ = 0;  // blocks, says the source
  std::uint64_t sync_serial_ = 0;  // of entries in the committed image; never used twice in a process
  std::optional<Lsn> sync_until_;
  std::uint64_t sync_round_ = 0;  // of the checkpointer, that syncs everything of the resync
  std::deque<SyncCheck> checks_;  // to be answered in order
  struct Checking {
    SyncCheck check;
    std::vector<Slot> slots;
    std::uint64_t home_changes = 0;
    bool stale = false;   // nobody waits for the answer any more
    bool singly = false;  // the read of all failed: each block is read by itself
    unsigned outstanding = 0;
    std::uint64_t unreadable = 0;  // of the mask
  };
  std::optional<Checking> checking_;
  bool clearing_ = false;  // the superblock that says Consistent is under way
  LogMark primary_commit_;
  Ack acked_;
};

}  // namespace twinloft::repl::core
