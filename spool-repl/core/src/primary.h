// The primary: takes the clients' requests, seals batches into records, sends them to the peers, and
// acknowledges. It owns four parts, and hands each event to the part that it concerns:
//
//   ClientIo      requests, the open batch, flushes that wait    asks Term
//   Membership    the epoch, and changes of the in-sync set      changes Term; asks ClientIo (Requests)
//   PeerLinks     connections: matching, records, acks           asks Term, Membership; calls ResyncSource
//   ResyncSource  blocks that go to a peer beside records; Pace  asks Term
//
// The parts share Term (required replicas, suspension) and Peers (the state of each peer).
// advance() has the order in which the parts act after each event.
#pragma once

#include <string>
#include <vector>

#include "checkpointer.h"
#include "client_io.h"
#include "membership.h"
#include "peer_links.h"
#include "read_balance.h"
#include "repair.h"
#include "resync_source.h"
#include "send_room.h"
#include "term.h"
#include "volume.h"

namespace twinloft::repl::core {

class Primary {
 public:
  Primary(Volume& volume, Checkpointer& checkpointer, Repair& repair);
  Primary(const Primary&) = delete;
  Primary& operator=(const Primary&) = delete;

  // Begins the epoch of a promotion, as a record of the log. `value`: that of an external arbiter.
  void start(const Epoch& epoch, ReplicaSet in_sync, std::optional<EpochValue> value, const Grounds& grounds);
  void on_arbiter(const ArbiterAnswer& answer) { membership_.on_arbiter(answer); }
  // Continue without the members that are away (manual arbiter, forced by the operator).
  bool go_on_alone() { return membership_.go_on_alone(); }  // false: no required replica is away
  void refuse_other(ReplicaId id, std::string reason, bool split_brain);  // another primary
  void demote();                                                          // no request comes after this
  void stay() { membership_.stay(); }
  bool may_step_down() const;  // demoted or lost, and nothing is in flight
  bool lost() const { return term_.lost(); }
  void lose(std::string reason) { membership_.lose(std::move(reason)); }  // another primary has taken over
  const Epoch& epoch() const { return term_.epoch(); }
  void submit(const ClientRequest& request) { io_.submit(request); }
  void on_client_read(std::uint64_t token_number, int error) { io_.on_client_read(token_number, error); }
  void on_fill_read(std::uint64_t token_number, int error) { io_.on_fill_read(token_number, error); }
  void on_sync_read(std::uint64_t token_number, int error) { resync_.on_sync_read(token_number, error); }
  void on_journal_read(std::uint64_t token_number, int error, std::vector<std::byte> bytes);
  void on_spill_read(std::uint64_t token_number, int error, std::vector<std::byte> chunk) {
    links_.on_spill_read(token_number, error, std::move(chunk));
  }
  std::vector<Stream> streams() const { return links_.streams(); }
  bool on_blocks_read(ReplicaId from, const BlocksRead& answer) { return io_.on_blocks_read(from, answer); }
  void on_repaired(const std::vector<Repair::Finished>& finished);
  void peer_up(ReplicaId id) { links_.peer_up(id); }
  void peer_down(ReplicaId id) { links_.peer_down(id); }
  void peer_state(ReplicaId id, const NodeState& state);
  void peer_input(ReplicaId id, PeerMessage message) { links_.peer_input(id, std::move(message)); }
  void advance();
  // No more events come before the next output: seals what they have left. False: there was nothing to seal.
  bool end_turn();
  void flush_messages() { links_.flush_messages(false); }
  void tell_commit() { links_.flush_messages(true); }
  std::optional<Instant> next_tick() const;
  void fill_status(VolumeStatus& status) const;
  bool settled() const { return io_.settled(); }
  void check_invariants() const;

 private:
  void advance_acks();
  void advance_resyncs();

  Volume& v_;
  Peers peers_;
  Term term_;
  SendRoom room_;
  ResyncSource resync_;
  ReadBalance balance_;
  ClientIo io_;
  Membership membership_;
  PeerLinks links_;
  bool turn_ends_ = false;
};

}  // namespace twinloft::repl::core
