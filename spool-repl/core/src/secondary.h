// The secondary: journals the primary's records, and writes them home up to the primary's commit point.
//
//   Unconnected --MatchRequest--> Matching --Begin--> Begun --tail cut--> Following
//                                    |                                      ^
//                                    +--SyncBegin, or discard: log given up-+
//
// The end of the connection leads from each state to Unconnected. A refusal by either side leads to Refused.
// A cut of the log (rejoin.h) and the end of a resync (resync_target.h) continue without the primary.
#pragma once

#include <deque>
#include <expected>
#include <map>
#include <optional>
#include <variant>

#include "checkpointer.h"
#include "companion.h"
#include "discard.h"
#include "rejoin.h"
#include "relay_intake.h"
#include "relay_service.h"
#include "repair.h"
#include "resync_target.h"
#include "volume.h"

namespace twinloft::repl::core {

class Secondary {
 public:
  Secondary(Volume& volume, Checkpointer& checkpointer);

  void submit(const ClientRequest& request);  // a secondary serves no clients: EROFS
  // A primary shows itself by its MatchRequest, a neighbour by its Subscribe.
  void peer_up(ReplicaId) {}
  void peer_down(ReplicaId id);
  void peer_input(ReplicaId id, PeerMessage message);
  void peer_state(ReplicaId id, const NodeState& state);
  void on_archived(int error);
  void on_cut_durable();
  void on_erased(int error);
  void on_reset_durable();
  void on_consistent_durable() { target_.on_consistent_durable(); }
  void on_check_read(std::uint64_t bit, int error) { target_.on_check_read(bit, error); }
  void on_relay_read(std::uint64_t token_number, int error, std::vector<std::byte> bytes) {
    service_.on_journal_read(token_number, error, std::move(bytes));
  }
  std::vector<Stream> streams() const;
  void discard(const Discard& command) { discarding_.ask(command, why_of_); }
  bool discards() const { return discarding_.active(); }
  std::optional<Instant> next_tick() const;
  bool follows() const { return primary_ != 0 && !is<Refused>(); }
  void advance();
  void flush_messages();
  void fill_status(VolumeStatus& status) const;
  bool settled() const;
  void check_invariants() const;

 private:
  // Messages of the primary that were not taken yet.
  struct Incoming {
    std::deque<RecordMessage> records;  // limited by the primary's send window, and by a limit here
    std::size_t bytes = 0;
    LogMark commit;
  };
  struct Unconnected {};
  struct Matching {};  // the primary searches for the last common record
  struct Begun {       // records and commit points may arrive, but wait until the tail here is cut off
    Incoming in;
  };
  struct Following {
    Incoming in;
    Ack acked;
    Companion ack_waits;
  };
  struct Refused {};

  template <class State>
  bool is() const {
    return std::holds_alternative<State>(link_);
  }
  Incoming* incoming();
  ConnectionState connection() const;

  void match(ReplicaId id, const MatchRequest& message);
  void answer_match();
  void forget_primary();
  void drop_resync();
  // A message that does not fit the state is refused. No assertion depends on a message.
  void handle(const Probe& message);
  void handle(const Begin& message);
  void handle(RecordMessage& message);
  void handle(const Commit& message);
  void handle(const Refuse& message);
  void handle(SyncBegin& message);
  void handle(const SyncProgress& message);
  void handle(const Behind& message);
  void handle(const KeepFor& message);
  void handle(const TakeFrom& message);
  void handle(RecordMarks& message);
  bool step_relay(ReplicaId from, PeerMessage& message);
  void end_relays();
  template <class Message>
  void pass_on(Message& message);  // to the target of a resync
  std::string why_not_begun(const Begin& message) const;
  bool adopt_source(const Begin& message);
  void note_lost(const Begin& message);
  void begin_discard(const MatchRequest& message);
  void refuse(std::string reason, bool split_brain = false);
  void note_refusal(const std::string& reason, bool split_brain);
  void note_covered(RecordNo end, Lsn primary_commit);
  void take_backlog();
  void take_from_relay();
  void keep_for_others();
  std::expected<bool, std::string> take_record(const RecordMessage& message);  // false: no room now
  bool is_awaited(const Ack& ack, const Ack& told) const;
  void begin();
  void connected();
  void after_cut(const std::optional<Rejoin::Cut>& done);

  Volume& v_;
  Checkpointer& checkpointer_;
  ResyncTarget target_;
  Rejoin rejoin_;
  Discarding discarding_;
  RelayIntake intake_;
  RelayService service_;
  ReplicaId primary_ = 0;  // the peer that is connected as primary; 0: none
  Epoch epoch_;            // of the primary
  Lsn common_;             // the newest record that both are known to have, by the last matching
  std::variant<Unconnected, Matching, Begun, Following, Refused> link_;
  std::map<ReplicaId, KeepFor> keep_;  // messages whose record has not come yet
  std::string why_;                    // the last refusal
  ReplicaId why_of_ = 0;
};

}  // namespace twinloft::repl::core
