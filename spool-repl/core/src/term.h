// The epoch that a primary writes in, and who must have a record before it is acknowledged. Membership
// changes it; the others ask.
#pragma once

#include "peer.h"
#include "volume.h"

namespace twinloft::repl::core {

// An acknowledgement needs everyone in required(): the set of the newest epoch record, members that are being
// added, and, until the newest epoch record is durable on the members of its own set, the members of the set
// before.
class Term {
 public:
  Term(const Volume& volume, const Peers& peers) : v_(volume), peers_(peers) {}
  Term(const Term&) = delete;
  Term& operator=(const Term&) = delete;

  const Epoch& epoch() const { return epoch_; }
  ReplicaSet in_sync() const { return in_sync_; }
  ReplicaSet counted() const { return in_sync_ | before_; }
  std::uint32_t flags() const { return grounds_.flags; }
  EpochMark granted_after() const { return grounds_.granted_after; }
  bool logged() const { return logged_; }  // the epoch's record has its place in the log
  RecordNo end() const { return end_; }    // one past the epoch's record
  bool in_flight() const { return logged_ && v_.log.durable_end() < end_; }
  // The table, with an epoch that waits for room in the journal: a peer that connects has to judge by that
  // epoch too.
  EpochTable epochs() const;
  // Another primary has taken over, or may have.
  bool lost() const { return lost_; }

  bool required(const Peer& peer) const;
  // No write can be acknowledged: members are too few, away, or being filled.
  bool suspended() const;
  RecordNo durable_on(ReplicaSet set) const;  // one past the last record that is durable on all of them
  RecordNo committable_end() const;           // one past the last record that all who are required have
  // One past the last record that is as safe as each link's protocol promises.
  RecordNo acked_end() const;

  // Transitions, for Membership.
  void begin(const Epoch& epoch, ReplicaSet in_sync, const Grounds& grounds);
  void note_logged(RecordNo end);
  void settle();  // the epoch's record is durable on its own set: who counted before counts no more
  void lose() { lost_ = true; }

  void check_invariants() const;

 private:
  const Volume& v_;
  const Peers& peers_;
  Epoch epoch_;
  ReplicaSet in_sync_ = 0;  // of epoch_
  ReplicaSet before_ = 0;   // set before epoch_, while epoch_'s record is not durable on in_sync_
  Grounds grounds_;
  RecordNo end_ = 0;
  bool logged_ = false, lost_ = false;
};

}  // namespace twinloft::repl::core
