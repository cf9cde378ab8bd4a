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
  if (command_) return "this replica's history is already being discarded";
  if (v_.failed) return fmt::format("replica {} has failed: {}", v_.sb.replica, v_.failure);
  if (v_.disk.syncing() && !split) return "this replica is Inconsistent: it has no history to discard";
  if (!split)
    return "this replica knows of no split brain: nothing was discarded. Promote the replica whose history "
           "is to stay, and let both connect";
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
      "replica {0} shows no record of the history here: nothing was discarded. Replica {0} may have been "
      "recreated{1}. This may be the only copy. If the history of replica {0} is the one to keep, use "
      "--force",
      with, forgotten ? fmt::format(", or both split more than {} epochs ago", epoch_table_max) : "");
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
  if (v_.failed) return end(false, fmt::format("replica {} has failed: {}", v_.sb.replica, v_.failure));
  if (rejoin_.gives_up() || v_.now < command_->deadline) return;
  end(false, fmt::format("replica {} has not connected as primary within {} s: nothing was changed",
                         command_->winner,
                         std::chrono::duration_cast<std::chrono::seconds>(winner_time_max).count()));
}

// The winner may have been created again since the match, and then lacks the common records.
std::string Discarding::doubt_of_winner() const {
  TL_CHECK(command_.has_value());
  const Link* link = v_.find_link(command_->winner);
  if (!link || !link->state) return "its state is not known yet";
  if (link->state->inconsistent) return "it is Inconsistent";
  const SplitBrain* split = v_.split_brain_with(command_->winner);
  if (!split) return "the split brain is over";
  if (!split->parted) return "the last common record is not known";
  if (link->state->last.lsn < *split->parted)
    return fmt::format("its history ends at LSN {}, before the last common record {}",
                       link->state->last.lsn.v, split->parted->v);
  return "";
}

void Discarding::finish() {
  TL_CHECK(command_ || v_.failed);  // a failed device ends the command, but not the discard
  TL_CHECK(v_.disk.syncing() && v_.log.last_mark().lsn == Lsn{0});
  end(true,
      fmt::format("the history of this replica is discarded: a resync from replica {} follows", winner()));
}

void Discarding::check_invariants() const {
  TL_CHECK(!rejoin_.gives_up() || command_ || v_.failed);
  TL_CHECK(!command_ || v_.find_link(command_->winner));
}

}  // namespace twinloft::repl::core
