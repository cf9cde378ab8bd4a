// Giving up this replica's side of a split brain, at the administrator's word.
//
//   Discard -> waits for the winner to connect as primary -> journal archived -> superblock (Inconsistent,
//   empty log)
//           -> MatchState of a replica that has nothing -> full resync
//
// Nothing is given up before the replica that is to fill this one is there, and the one superblock write is
// all that changes: before it this is split brain as it was, after it a replica into which a resync was not
// finished.
#include "secondary.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr Duration winner_time_max = std::chrono::seconds(30);
}

// Of those in split brain with this one, the one that is here as primary; else the one that was met last,
// else any.
const SplitBrain* Secondary::rival() const {
  const SplitBrain* found = nullptr;
  for (const SplitBrain& s : v_.sb.split_brains) {
    const Link* l = v_.find_link(s.with);
    if (!l) continue;
    if (l->state && l->state->primary) return &s;
    if (!found || s.with == why_of_) found = &s;
  }
  return found;
}

void Secondary::discard(const Discard& command) {
  std::string why;
  const SplitBrain* split = rival();
  if (discard_)
    why = "its history is being given up already";
  else if (v_.failed)
    why = "this node's disk has failed: " + v_.failure;
  else if (v_.disk.syncing() && !split)
    why = "this replica is Inconsistent: it has no history of its own that could be given up";
  else if (!split)
    why =
        "this replica has seen no split brain: nothing is given up. Start the replica whose history is to "
        "stay, as primary, and let "
        "the two connect";
  else if (split->parted == Lsn{} && !command.force)
    why = nothing_in_common(split->with);
  if (!why.empty()) {
    v_.out.commands.push_back({command.token, false, why});
    return;
  }
  discard_ = Discarding{command.token, split->with, command.force, v_.now + winner_time_max};
}

std::string Secondary::nothing_in_common(ReplicaId with) const {
  const Link* link = v_.find_link(with);
  bool forgotten = v_.sb.epochs.size() == epoch_table_max ||
                   (link && link->state && link->state->epochs.size() == epoch_table_max);
  return fmt::format(
      "replica {} shows nothing of the history that is here. It may have been created anew{}, and this may "
      "be the only copy: nothing is given up. --force, if its history is the one to keep all the same",
      with, forgotten ? fmt::format(", or the two parted more than {} epochs ago", epoch_table_max) : "");
}

// What the two have in common is looked at first, where that has not been done: then it is refused, and comes
// again.
bool Secondary::may_give_up() const {
  const SplitBrain* split = v_.split_brain_with(discard_->winner);
  return giving_up_ || !split || split->parted;
}

void Secondary::end_discard(bool ok, std::string text) {
  if (!discard_) return;
  v_.out.commands.push_back({discard_->command, ok, std::move(text)});
  discard_.reset();
}

std::optional<Instant> Secondary::next_tick() const {
  if (!discard_ || giving_up_) return tell_at();
  return discard_->deadline;
}

void Secondary::bound_discard() {
  if (!discard_) return;
  if (v_.failed) return end_discard(false, "this node's disk has failed: " + v_.failure);
  if (giving_up_ || v_.now < discard_->deadline) return;
  end_discard(false, fmt::format("replica {} has not connected as primary within {} s: nothing was changed",
                                 discard_->winner,
                                 std::chrono::duration_cast<std::chrono::seconds>(winner_time_max).count()));
}

// It may have been created anew since the two were matched, with nothing of what both had.
std::string Secondary::doubt_of_winner() const {
  const Link* link = v_.find_link(discard_->winner);
  if (!link || !link->state) return "it has not said what it holds";
  if (link->state->inconsistent) return "it is Inconsistent";
  const SplitBrain* split = v_.split_brain_with(discard_->winner);
  if (!split) return "the split brain is over";
  if (!split->parted) return "it is not known what both have";
  if (link->state->last.lsn < *split->parted)
    return fmt::format("its history ends at LSN {}, and it had more: LSN {} is in both",
                       link->state->last.lsn.v, split->parted->v);
  return "";
}

// The winner asks where we are: it gets its answer when there is nothing left to speak for the history here.
void Secondary::begin_discard(const MatchRequest& m) {
  if (cut_ == Cut::resetting && giving_up_) return;  // under way since an earlier connection
  if (cut_ == Cut::resetting) {
    end_discard(false, "a resync into this replica has begun meanwhile");
    return answer_match();
  }
  if (std::string doubt = doubt_of_winner(); !doubt.empty()) {
    end_discard(false, fmt::format("nothing is given up for replica {}: {}", discard_->winner, doubt));
    return answer_match();
  }
  giving_up_ = true;
  reset_ = SyncBegin{m.epoch, {Lsn{0}, genesis_hash(v_.sb.volume, v_.sb.volume_blocks)}, {}, true, {}, {},
                     {}};
  reset_archived_ = false;
  v_.hold_checkpoint = true;
  try_reset();
}

void Secondary::on_discard_durable() {
  TL_CHECK(discard_ && giving_up_);
  giving_up_ = false;
  v_.end_split_brains_but(discard_->winner);  // what set this replica apart from others too is gone
  why_.clear();
  why_of_ = 0;
  end_discard(true,
              fmt::format("the history of this replica is given up: replica {} fills it", discard_->winner));
  if (connection_ == ConnectionState::Matching && !begun_) answer_match();
}

}  // namespace twinloft::repl::core
