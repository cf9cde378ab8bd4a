// The secondary: takes the primary's records, journals them, and writes home what the primary says is committed.
//
//   Connecting --PeerUp--> Matching --Begin, tail cut--> Connected --PeerDown--> Connecting
#pragma once

#include <deque>

#include "checkpointer.h"
#include "volume.h"

namespace twinloft::repl::core {

class Secondary {
 public:
  Secondary(Volume& volume, Checkpointer& checkpointer);

  void submit(const ClientRequest& request);  // a secondary serves nobody: EROFS
  void peer_up(ReplicaId) {}  // which of the others is primary shows when one asks to match
  void peer_down(ReplicaId id);
  void peer_input(ReplicaId id, PeerMessage message);
  void peer_state(ReplicaId id, const NodeState& state);
  void on_archived(int error);
  void on_cut_durable();
  bool follows() const { return primary_ != 0 && connection_ != ConnectionState::StandAlone; }
  void advance();
  void flush_messages();
  void fill_status(VolumeStatus& status) const;
  bool settled() const;

 private:
  void match(ReplicaId id, const MatchRequest& message);
  void forget_primary();
  std::string split_brain(LogMark common) const;
  void handle(const Probe& message);
  void handle(const Begin& message);
  void handle(RecordMessage& message);
  void handle(const Commit& message);
  void handle(const Refuse& message);
  void refuse(std::string reason);
  void take_backlog();
  bool take_record(RecordMessage& message);  // false: no room now
  void try_cut();
  void finish_cut();
  void connected();

  Volume& v_;
  Checkpointer& checkpointer_;
  ReplicaId primary_ = 0;  // the peer that is connected as primary, 0: none
  ConnectionState connection_ = ConnectionState::Connecting;
  Epoch epoch_;            // of that primary
  std::string why_;
  ReplicaId why_of_ = 0;
  bool split_brain_ = false;
  // Begin was received and the tail behind `cut_to_` goes: first the journal writes under way end, then the
  // what goes is archived, then the superblock that makes old frames void is durable, then records are taken.
  enum class Cut { none, waiting_for_journal, archiving, waiting_for_superblock } cut_ = Cut::none;
  LogMark cut_to_;
  bool begun_ = false;  // on this connection: records and commit points may come
  std::deque<RecordMessage> backlog_;  // bounded by the primary's send window
  LogMark primary_commit_;
  Ack acked_;
};

}  // namespace twinloft::repl::core
