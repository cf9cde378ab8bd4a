// The reads of a primary that members answer: which replica is asked, and the questions without an answer.
//
// Only blocks without content in memory are asked of a peer. The question names the epoch and the commit
// point, and goes to a member of the in-sync set that is not being filled. repair.h has the proof that the
// answer is right. The answer does not count for a block that has content in memory by then. If blocks have
// left memory meanwhile, only the digest can prove that the answer is the newest content.
//
// A question that is not answered within balanced_read_timeout is read here. Its peer is then not asked for a
// while, so a slow peer delays few reads.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "peer.h"
#include "term.h"

namespace twinloft::repl::core {

class ReadBalance {
 public:
  ReadBalance(Volume& volume, const Peers& peers, const Term& term);

  // Where the first of these blocks are read. peer 0: here.
  struct Choice {
    ReplicaId peer = 0;
    std::uint64_t blocks = 0;
  };
  // alone: no other read of a client is at the disk here, and the whole request lies within one stripe of the
  // policy. So a question gains nothing.
  Choice choose(Lba lba, std::uint64_t blocks, bool alone);
  bool is_alone(Lba first, std::uint64_t blocks) const;
  // A read of the data area here begins, and ends. weight: of the read, in the queue at that time.
  struct Begun {
    Instant since;
    std::uint64_t weight = 0, queue = 0;
  };
  Begun begin_local(std::uint64_t blocks);
  void end_local(const Begun& read);

  struct Asked {
    ReplicaId peer = 0;
    std::uint64_t connection = 0;
    Epoch epoch;
    Lba lba;
    std::uint32_t blocks = 0;
    std::uint64_t owner = 0;  // of the caller
    std::uint64_t home_changes = 0;
    Begun read;
    Instant until;
    bool given_up = false;  // the blocks are read here
  };
  void ask(ReplicaId peer, Lba lba, std::uint64_t blocks, std::uint64_t owner);
  // late: to a question that was given up. refused: to no question.
  enum class Answer { asked, late, refused };
  Answer take(ReplicaId from, const BlocksRead& answer, Asked& to);
  void note_wrong(const Asked& asked, Lba lba);  // the content is not what this replica has written
  // Each question that is given up, once: without an answer for too long, of a lost connection, or of a lost
  // or failed primary.
  std::vector<Asked> take_overdue();
  std::optional<Instant> next_tick() const;
  void fill_status(VolumeStatus& status) const;
  void check_invariants() const;

 private:
  // Of one replica. The queue is what is in flight.
  struct Place {
    std::uint64_t queue = 0;
    unsigned reads = 0;  // in flight; of here_ only
    double cost = 0;     // seconds for each unit of the queue; 0: not measured
    Instant measured{};
    Instant rests_until{};
    std::uint64_t answered = 0, wrong = 0;
    double expected(std::uint64_t weight) const { return cost * static_cast<double>(queue + weight); }
  };
  bool may_ask(const Peer& peer) const;
  Place& of(ReplicaId peer) { return places_[peer]; }
  ReplicaId fewest(bool with_local);
  ReplicaId in_turn();
  ReplicaId fastest(std::uint64_t weight);
  void measure(Place& place, const Begun& read) const;
  void rest(ReplicaId peer, Duration time) { of(peer).rests_until = v_.now + time; }

  Volume& v_;
  const Peers& peers_;
  const Term& term_;
  Place here_;
  std::map<ReplicaId, Place> places_;  // of the peers
  std::map<std::uint64_t, Asked> asked_;
  std::uint64_t last_seq_ = 0, turn_ = 0;
};

}  // namespace twinloft::repl::core
