#include "discard.h"

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr Duration winner_time_max = std::chrono::seconds(30);
}

// The replica in split brain with this replica that is connected as primary. Otherwise `met_last`, otherwise
// any replica in split brain.
const SplitBrain* Discarding::rival(ReplicaId met_last) const {
  const SplitBrain* found = nullptr;
  for (const SplitBrain& s : v_.sb.split_brains) {
    const Link* l = v_.find_link(s.with);
    if (!l) continue;
    if (l->state && l->state->primary) return &s;
    if (!found || s.with == met_last) found = &s;
  }
  return found;
}

std::string Discarding::objection(const Discard& command, const SplitBrain* split) const {
  if (command_) return "its history is being given up already";
  if (v_.failed) return "this node's disk has failed: " + v_.failure;
  if (v_.disk.syncing() && !split)
    return "this replica is Inconsistent: it has no history of its own that could be given up";
  if (!split)
    return "this replica has seen no split brain: nothing is given up. Start the replica whose history is to "
           "stay, as primary, and let "
           "the two connect";
  if (split->parted == Lsn{} && !command.force) return nothing_in_common(split->with);
  return "";
}

void Discarding::ask(const Discard& command, ReplicaId met_last) {
  const SplitBrain* split = rival(met_last);
  std::string why = objection(command, split);
  if (why.empty())
    command_ = Command{command.token, split->with, command.force, v_.now + winner_time_max};
  else
    v_.out.commands.push_back({command.token, false, why});
}

std::string Discarding::nothing_in_common(ReplicaId with) const {
  const Link* link = v_.find_link(with);
  bool forgotten = v_.sb.epochs.size() == epoch_table_max ||
                   (link && link->state && link->state->epochs.size() == epoch_table_max);
  return fmt::format(
      "replica {} shows nothing of the history that is here. It may have been created anew{}, and this may "
      "be the only copy: nothing is given up. --force, if its history is the one to keep all the same",
      with, forgotten ? fmt::format(", or the two parted more than {} epochs ago", epoch_table_max) : "");
}

// If the last common record is not known yet, the winner is refused now. The match finds the common record,
// and the winner connects again.
bool Discarding::comes(ReplicaId primary) const {
  if (!command_ || primary != command_->winner) return false;
  const SplitBrain* split = v_.split_brain_with(primary);
  return rejoin_.gives_up() || !split || split->parted;
}

void Discarding::note_split_brain(ReplicaId with, Lsn common) {
  bool stops = command_ && command_->winner == with && common == Lsn{} && !command_->force &&
               !rejoin_.gives_up();
  if (stops) end(false, nothing_in_common(with));
}

void Discarding::end(bool ok, std::string text) {
  if (!command_) return;
  v_.out.commands.push_back({command_->token, ok, std::move(text)});
  command_.reset();
}

std::optional<Instant> Discarding::next_tick() const {
  if (!command_ || rejoin_.gives_up()) return std::nullopt;
  return command_->deadline;
}

void Discarding::advance() {
  if (!command_) return;
  if (v_.failed) return end(false, "this node's disk has failed: " + v_.failure);
  if (rejoin_.gives_up() || v_.now < command_->deadline) return;
  end(false, fmt::format("replica {} has not connected as primary within {} s: nothing was changed",
                         command_->winner,
                         std::chrono::duration_cast<std::chrono::seconds>(winner_time_max).count()));
}

// The winner may have been created again since the match, and then lacks the common records.
std::string Discarding::doubt_of_winner() const {
  TL_CHECK(command_.has_value());
  const Link* link = v_.find_link(command_->winner);
  if (!link || !link->state) return "it has not said what it holds";
  if (link->state->inconsistent) return "it is Inconsistent";
  const SplitBrain* split = v_.split_brain_with(command_->winner);
  if (!split) return "the split brain is over";
  if (!split->parted) return "it is not known what both have";
  if (link->state->last.lsn < *split->parted)
    return fmt::format("its history ends at LSN {}, and it had more: LSN {} is in both",
                       link->state->last.lsn.v, split->parted->v);
  return "";
}

void Discarding::finish() {
  TL_CHECK(command_ || v_.failed);  // a failed device ends the command, but not the discard
  TL_CHECK(v_.disk.syncing() && v_.log.last_mark().lsn == Lsn{0});
  end(true, fmt::format("the history of this replica is given up: replica {} fills it", winner()));
}

void Discarding::check_invariants() const {
  TL_CHECK(!rejoin_.gives_up() || command_ || v_.failed);
  TL_CHECK(!command_ || v_.find_link(command_->winner));
}

}  // namespace twinloft::repl::core
