// `discard`: the administrator gives up this replica's side of a split brain.
//
//   nothing --Discard--> waits for the winner to connect as primary --> given up, see rejoin.h
//                          |  journal archived -> superblock (Inconsistent, empty log) -> MatchState of an
//                          |  empty replica -> full resync
//                          +--> ended: the winner has not connected, refuses, or is doubtful
//
// The winner is the replica that fills this replica. Nothing is given up before the winner is connected. One
// superblock write makes the change: before this write the split brain is unchanged, after it this replica
// has an unfinished resync.
#pragma once

#include <optional>
#include <string>

#include "rejoin.h"
#include "volume.h"

namespace twinloft::repl::core {

class Discarding {
 public:
  Discarding(Volume& volume, const Rejoin& rejoin) : v_(volume), rejoin_(rejoin) {}

  bool active() const { return command_.has_value(); }
  ReplicaId winner() const { return command_ ? command_->winner : 0; }
  // `met_last`: the replica of the last refusal, by either side.
  void ask(const Discard& command, ReplicaId met_last);
  void end(bool ok, std::string text);  // answers the command, if there is one
  void advance();                       // ends a command that cannot succeed any more
  // `primary` wants to match. True: it is the winner, and the history here may be given up for it.
  bool comes(ReplicaId primary) const;
  void note_split_brain(ReplicaId with, Lsn common);
  std::string doubt_of_winner() const;  // empty: none
  void finish();                        // the history is given up
  std::optional<Instant> next_tick() const;
  void check_invariants() const;

 private:
  struct Command {
    Token token;
    ReplicaId winner;
    bool force;
    Instant deadline;  // for the winner to connect
  };
  const SplitBrain* rival(ReplicaId met_last) const;
  std::string objection(const Discard& command, const SplitBrain* split) const;
  std::string nothing_in_common(ReplicaId with) const;

  Volume& v_;
  const Rejoin& rejoin_;
  std::optional<Command> command_;
};

}  // namespace twinloft::repl::core
