// Membership of a primary: its epoch, and changes of the in-sync set.
//
//                 start_change                    granted
//   no change --------------> asking the arbiter --------> new epoch
//       ^                       |          ^                   |
//       |               unknown |          | arbiter_retry     | its record is durable
//       |               outcome v          |                   | on its own set
//       |                     waiting -----+                   |
//       +------------------------------------------------------+
//
// The manual arbiter grants at once. The arbiter grants a change of the set before the change becomes a
// record. After an unknown outcome nothing changes here, and the same change is requested again. If the
// answer names another primary, this primary is lost.
#pragma once

#include <string>

#include "checkpointer.h"
#include "requests.h"
#include "term.h"

namespace twinloft::repl::core {

class Membership {
 public:
  Membership(Volume& volume, Checkpointer& checkpointer, Peers& peers, Term& term, Requests& requests)
      : v_(volume), checkpointer_(checkpointer), peers_(peers), term_(term), requests_(requests) {}
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // A promotion calls this, then begin_epoch(). `value`: the arbiter's value, with an external arbiter.
  void take_office(ReplicaSet in_sync, std::optional<EpochValue> value);
  void begin_epoch(const Epoch& epoch, ReplicaSet in_sync, const Grounds& grounds);
  // Begins an epoch above `counter`, since a replica has an unknown epoch with this counter. False: no epoch
  // may begin now, or this primary is lost.
  bool begin_epoch_behind(std::uint64_t counter);
  void log_epoch_if_due();

  void on_arbiter(const ArbiterAnswer& answer);
  // Asks the arbiter, also without a due change of the set: a replica has an epoch `newer` of another
  // primary.
  void ask_whether_granted(std::uint64_t newer);
  void consider_change();
  bool go_on_alone();  // false: no required replica is away
  void demote() { demoting_ = true; }
  void stay() { demoting_ = false; }
  void lose(std::string reason);  // another primary has taken over, or may have

  // Fails the device after suspend_timeout.
  void bound_suspension();
  void tell_suspension();

  bool demoting() const { return demoting_; }
  bool changing(ReplicaId id) const { return change_ && (change_->desired.in_sync & set_of(id)); }
  bool settled() const { return term_.logged() && !change_; }
  bool may_be_closed(const Peer& peer) const;
  // The LSN up to which the peer may have acknowledged. `peer_last`: the end of its log.
  Lsn held_by(const Peer& peer, Lsn peer_last) const;
  bool lossy_behind(RecordNo end) const;  // an epoch from `end` on was begun in spite of a loss
  // The volume is new, and its first record is not durable here yet.
  bool first_record_not_durable() const { return first_ever_ && v_.log.durable_end() <= promoted_at_; }
  std::string waits_for() const;
  std::optional<Instant> next_tick() const;
  void check_invariants() const;

 private:
  static constexpr Duration suspension_news_after = std::chrono::milliseconds(500);
  struct Change {
    EpochValue desired;
    std::optional<Instant> ask_again;  // the outcome is unknown
  };
  void log_epoch();
  bool needs_us(const Peer& peer) const;
  bool policy_leaves_out(const Peer& peer) const;
  bool may_leave_out(const Peer& peer) const;
  bool leave_out_those_away();
  void add_those_that_caught_up();
  void start_change(ReplicaSet set, bool by_force = false, std::uint64_t after = 0);
  void ask_arbiter();
  void apply_change();
  void lose_to(const ArbiterAnswer& answer);

  Volume& v_;
  Checkpointer& checkpointer_;
  Peers& peers_;
  Term& term_;
  Requests& requests_;
  RecordNo promoted_at_ = 0;         // this primary's first record
  bool first_ever_ = false;          // the log was empty before it
  std::optional<EpochValue> value_;  // the arbiter's value, as far as known here
  std::optional<Change> change_;
  std::uint64_t arbiter_token_ = 0;       // of the newest question
  std::optional<std::uint64_t> doubted_;  // a peer's newer epoch, while the arbiter is asked about it
  std::optional<Instant> waiting_since_;  // suspended, and a request waits
  std::optional<Instant> suspended_since_;
  bool suspension_told_ = false;
  bool forced_alone_ = false, demoting_ = false;
};

}  // namespace twinloft::repl::core
