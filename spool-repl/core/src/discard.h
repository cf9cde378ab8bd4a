// `discard`: the administrator gives up this replica's side of a split brain.
//
//   nothing --Discard--> waits for the winner to connect as primary --> given up, see rejoin.h
//                          |  journal archived -> superblock (Inconsistent, empty log) -> MatchState of a
//                          |  replica that has nothing -> full resync
//                          +--> ended: the winner has not come, or refuses, or is doubtful
//
// Nothing is given up before the replica that is to fill this one is there, and the one superblock write is
// all that changes: before it this is split brain as it was, after it a replica into which a resync was not
// finished.
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
  // `met_last`: who refused, or was refused, last.
  void ask(const Discard& command, ReplicaId met_last);
  void end(bool ok, std::string text);  // answers the command, if there is one
  void advance();                       // ends where nothing comes of it any more
  // This replica wants to match: whether it is the winner, and the history here may go for it.
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
