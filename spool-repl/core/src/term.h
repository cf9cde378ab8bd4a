// The primary's epoch, and the replicas that an acknowledgement needs. Only Membership changes both.
#pragma once

#include "peer.h"
#include "volume.h"

namespace twinloft::repl::core {

// An acknowledgement needs every replica that is required(): the members of the newest epoch, and replicas
// that are being added. Former members are required until the newest epoch record is durable on its members.
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
  // The table, with this epoch even while its record waits for room in the journal. A peer must judge by it.
  EpochTable epochs() const;
  // Another primary has taken over, or may have.
  bool lost() const { return lost_; }

  bool required(const Peer& peer) const;
  // No write can be acknowledged: members are too few, away, or being filled.
  bool suspended() const;
  RecordNo durable_on(ReplicaSet set) const;  // one past the last record that is durable here and on the set
  RecordNo committable_end() const;           // one past the last record that is durable on all required
  // One past the last record that is as safe as each link's protocol promises.
  RecordNo acked_end() const;

  // Transitions, for Membership.
  void begin(const Epoch& epoch, ReplicaSet in_sync, const Grounds& grounds);
  void note_logged(RecordNo end);
  void settle();  // the epoch's record is durable on its own set: former members are not required any more
  void lose() { lost_ = true; }

  void check_invariants() const;

 private:
  const Volume& v_;
  const Peers& peers_;
  Epoch epoch_;
  ReplicaSet in_sync_ = 0;  // of epoch_
  ReplicaSet before_ = 0;   // former members, until epoch_'s record is durable on in_sync_
  Grounds grounds_;
  RecordNo end_ = 0;
  bool logged_ = false, lost_ = false;
};

}  // namespace twinloft::repl::core
