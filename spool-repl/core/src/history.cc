#include "twinloft/spool-repl/core/history.h"

#include <algorithm>

namespace twinloft::repl::core {

namespace {

using disk_state::Damaged;
using disk_state::Syncing;
using verdict::SplitBrain;

// The epochs of a history behind a common record. The other history ends in the epoch `other`.
struct Successors {
  bool by_force = false;  // an epoch was begun by force, or the table does not reach back far enough to tell
  bool lossy = false;     // an epoch has epoch_lossy, or the table does not reach back far enough to tell
  ReplicaId first = 0;    // writer of the first epoch; 0: none
  bool first_by_force = false;  // the first epoch has epoch_by_force
  bool heir = false;            // an epoch was granted after `other`
  bool beside = false;          // an epoch's counter is not above that of `other`: the arbiter was set back
  // The members that were connected, and had lost nothing, when the first epoch began. No set with one of
  // these members has acknowledged a record that all of them lack.
  ReplicaSet witnesses = 0;
};

Successors successors_behind(Lsn lsn, std::span<const EpochEntry> epochs, const Epoch& other) {
  Successors out;
  out.by_force = out.lossy = !epochs.empty() && epochs.front().start > lsn + 1;
  for (const EpochEntry& e : epochs) {
    if (e.start <= lsn) continue;
    if (out.first == 0) {
      out.first = e.writer;
      out.first_by_force = (e.flags & epoch_by_force) != 0;
      out.witnesses = e.flags & epoch_witnessed ? e.in_sync : 0;
    }
    out.by_force = out.by_force || (e.flags & epoch_by_force);
    out.lossy = out.lossy || (e.flags & epoch_lossy);
    out.heir = out.heir || comes_after(e, other);
    out.beside = out.beside || e.epoch.counter <= other.counter;
  }
  return out;
}

constexpr Lsn nowhere{UINT64_MAX};

// Whether the full table begins after `epoch`, so that it has forgotten the epoch, or behind the record after
// `common`, so that it has forgotten an epoch there. False if it may have forgotten a loss.
bool forgets(const EpochTable& epochs, const Epoch& epoch, Lsn common = nowhere) {
  if (epochs.size() < epoch_table_max) return false;
  const EpochEntry& oldest = epochs.front();
  return (oldest.epoch.counter > epoch.counter || Lsn{oldest.start.v - 1} > common) &&
         !(oldest.flags & epoch_lossy);
}

// Whether the table `there` has forgotten a forced promotion that this history does not have. Promotions of
// replicas in `counted` do not matter.
bool forced_unseen(const EpochTable& here, const EpochTable& there, ReplicaSet counted) {
  return (forcers_unknown_to(here, there) & ~counted) != 0;
}

// Whether the offered table has forgotten the epoch `left`, in which this history ends, or the first epoch
// behind `common`, but its primary still has everything acknowledged here. The primary was a member of
// `left`, so it had these records. It could only have given them up for a forced history (covers).
bool forgotten_and_kept(const History& here, const Offer& there, const EpochEntry& left,
                        Lsn common = nowhere) {
  if (!forgets(there.epochs, left.epoch, common) || !(left.in_sync & set_of(there.primary))) return false;
  return !forced_unseen(here.epochs, there.epochs, left.in_sync) &&
         std::none_of(there.epochs.begin(), there.epochs.end(), [&](const EpochEntry& e) {
           return (e.flags & epoch_by_force) && !(left.in_sync & set_of(e.writer));
         });
}

// Whether a tail that ends in the epoch `newest` may be cut off for the primary of `epoch`. The tail was
// never acknowledged, or the primary's history has it too, in each of these cases:
// - The primary was a member, and has not given up its records for a forced history (given_up).
// - A member began the first epoch behind the common record, or an epoch was granted after `newest` (heir).
//   This holds even if the log with that epoch was cut.
// - One arbiter grants all epochs (granted), and has granted no counter twice (beside).
// - A witness lacks the tail (`lost_there`).
// A forced epoch on either side rules out all but the first case. A promotion in spite of a loss rules out
// all.
bool covers(bool one_chain, ReplicaId primary, const Epoch& epoch, const Successors& there,
            const EpochEntry& newest, bool forced_here, bool lost_there) {
  if (there.lossy) return false;
  bool given_up = there.first_by_force && !(newest.in_sync & set_of(there.first));
  if ((newest.in_sync & set_of(primary)) && !given_up) return true;
  bool heir = there.heir || (there.first != 0 && (newest.in_sync & set_of(there.first)));
  bool granted = one_chain && newest.epoch.counter < epoch.counter && !there.beside;
  return (heir || granted || lost_there) && !there.by_force && !forced_here;
}

// Whether no record behind `lsn` was acknowledged. True if each epoch of these records excludes this replica
// and has a witness as a member: the witnesses lack the records. False if the table does not reach back.
bool acknowledged_to_nobody(const History& here, Lsn lsn, ReplicaSet witnesses) {
  const auto& epochs = here.epochs;
  if (epochs.empty() || epochs.front().start > lsn + 1) return false;
  for (std::size_t i = 0; i < epochs.size() && epochs[i].start <= here.last; ++i) {
    bool over = i + 1 < epochs.size() && epochs[i + 1].start <= lsn + 1;
    if (over) continue;
    if ((epochs[i].in_sync & set_of(here.replica)) != 0 || (epochs[i].in_sync & witnesses) == 0) return false;
  }
  return true;
}

// Whether the primary has everything that may have been acknowledged here before the journal was damaged.
// It has the committed records if its table has their epoch up to `until`, or the newest epoch that was here.
// Without committed records, nothing can be missing. Later records are judged like any tail.
bool has_what_was_damaged(const History& here, const Damaged& damage, const Offer& there) {
  const EpochTable& epochs = there.epochs;
  auto find = [&](const Epoch& e) {
    return std::find_if(epochs.begin(), epochs.end(),
                        [&](const EpochEntry& each) { return each.epoch == e; });
  };
  auto reaches = [&](auto e) {
    return e != epochs.end() && (e + 1 == epochs.end() || (e + 1)->start > damage.until);
  };
  EpochEntry newest = damage.newest.value_or(EpochEntry{});
  auto ours = find(newest.epoch);
  bool has_newest = ours != epochs.end();
  if (damage.until != Lsn{} && !reaches(ours) && !(damage.of && reaches(find(*damage.of))))
    return forgotten_and_kept(here, there, newest, damage.until);
  if (has_newest && ours + 1 == epochs.end()) return true;
  EpochEntry left = has_newest ? *ours : newest;         // the epoch in which the tail here ends
  Lsn parted = has_newest ? ours->start : damage.until;  // common epochs are no successors
  for (const EpochEntry& e : here.epochs)
    if (!has_newest && find(e.epoch) != epochs.end()) parted = std::max(parted, e.start);
  Successors behind = successors_behind(parted, epochs, left.epoch);
  bool forced_here = (left.flags & epoch_by_force) != 0;
  if (forgotten_and_kept(here, there, left, parted)) return true;
  return left.in_sync != 0 &&
         covers(here.one_chain, there.primary, there.epoch, behind, left, forced_here, false);
}

// Whether an unfinished resync has left only a part of a history here, and the offered history has this part.
bool is_fragment(const History& here, const Offer& there) {
  const auto* part = here.incomplete ? std::get_if<Syncing>(&*here.incomplete) : nullptr;
  if (!part) return false;
  if (!part->base || part->base->lsn.v == 0) return true;
  if (forgets(there.epochs, part->base->epoch) &&
      !forced_unseen(here.epochs, there.epochs, here.newest.in_sync))
    return true;
  return history_holds(there.epochs, Lsn{UINT64_MAX}, part->base->epoch, part->base->lsn);
}

// Whether the log was cut for the offered history. Then the offered history has the rest of the log.
bool is_of_the_cut(const History& here, const Offer& there) {
  if (!here.cut_for) return false;
  return there.epochs.holds(here.cut_for->epoch) || forgotten_and_kept(here, there, *here.cut_for);
}

SplitBrain lost_here(const Damaged& damage, const Offer& there) {
  return {
      fmt::format("split brain: before the journal was damaged, it had epoch {} and committed records up to "
                  "LSN {}, and replica {} does not have them",
                  damage.newest ? damage.newest->epoch.counter : 0, damage.until.v, there.primary)};
}

// Split brain if the journal was damaged and the offered history lacks records of it.
std::optional<SplitBrain> judge_damage(const History& here, const Offer& there) {
  const auto* damage = here.incomplete ? std::get_if<Damaged>(&*here.incomplete) : nullptr;
  if (!damage || has_what_was_damaged(here, *damage, there)) return std::nullopt;
  return lost_here(*damage, there);
}

// The tail behind the common record may be cut off only if no record of it was acknowledged without the
// primary.
std::optional<SplitBrain> judge_tail(const History& here, const Offer& there, Lsn common,
                                     const Successors& behind) {
  std::string parted = parting_text(common);
  if (common < here.commit)
    return SplitBrain{fmt::format("split brain: replica {} has committed LSN {}, and {}", here.replica,
                                  here.commit.v, parted)};
  if (here.last == common) return std::nullopt;
  if (forgotten_and_kept(here, there, here.newest, common)) return std::nullopt;
  bool forced_here = std::any_of(here.epochs.begin(), here.epochs.end(), [&](const EpochEntry& e) {
    return e.start > common && e.start <= here.last && (e.flags & epoch_by_force);
  });
  const ForgottenForce& forgotten = here.epochs.forgotten_force;
  forced_here = forced_here || (forgotten.writers != 0 && forgotten.start > common);
  // The writer may have lost these records before they were durable there. The witnesses prove that.
  bool lost_there = acknowledged_to_nobody(here, common, behind.witnesses);
  if (covers(here.one_chain, there.primary, there.epoch, behind, here.newest, forced_here, lost_there))
    return std::nullopt;
  std::uint64_t counter = here.newest.epoch.counter;
  if (here.newest.in_sync & set_of(there.primary))
    return SplitBrain{fmt::format("split brain: replica {} has discarded or lost writes of epoch {}, and {}",
                                  there.primary, counter, parted)};
  return SplitBrain{fmt::format("split brain: replica {} continued in epoch {} without replica {}, and {}",
                                here.replica, counter, there.primary, parted)};
}

}  // namespace

Verdict judge_records(const History& here, const Offer& offer) {
  if (auto lost = judge_damage(here, offer)) return *lost;
  if (!is_fragment(here, offer)) {
    Successors behind = successors_behind(offer.from, offer.epochs, here.last_epoch);
    if (auto split = judge_tail(here, offer, offer.from, behind)) return *split;
  }
  // Committed records are never cut off, even from a part of a history. The primary fills this replica.
  if (offer.from < here.commit) return verdict::Resync{};
  if (offer.from == here.last) return verdict::Follow{};
  return verdict::Cut{};
}

Verdict judge_resync(const History& here, const Offer& offer) {
  if (auto lost = judge_damage(here, offer)) return *lost;
  if (is_fragment(here, offer) || here.last.v == 0 || here.epochs.empty()) return verdict::Resync{};
  Lsn common = common_history(here.epochs, here.last, offer.epochs, offer.from);
  if (common >= here.last) return verdict::Resync{};
  if (here.commit > offer.from)
    return SplitBrain{
        fmt::format("split brain: replica {0} has committed LSN {1}, and the history of replica {2} begins "
                    "at LSN {3}: replica {0} is not overwritten",
                    here.replica, here.commit.v, offer.primary, offer.from.v)};
  if (is_of_the_cut(here, offer)) return verdict::Resync{};
  // The offered table may be full and begin after all epochs that are known here.
  EpochEntry left = here.newest;
  left.epoch = here.epochs.back().epoch;
  if (common.v == 0 && forgotten_and_kept(here, offer, left)) return verdict::Resync{};
  Successors behind = successors_behind(common, offer.epochs, here.newest.epoch);
  behind.by_force = behind.by_force || common.v == 0;
  if (auto split = judge_tail(here, offer, common, behind)) return *split;
  return verdict::Resync{};
}

Verdict judge_peer(Lsn common, Lsn commit, const NodeState* peer) {
  if (common >= commit) return verdict::Follow{};
  // An unfinished resync leaves no history to keep, unless the base of its content is behind `common`.
  bool unfinished = peer && peer->inconsistent && (!peer->base || peer->base->lsn <= common);
  if (unfinished) return verdict::Resync{};
  return SplitBrain{
      fmt::format("split brain: the secondary has committed writes up to LSN {}, and {}. Both histories are "
                  "kept: decide which replica is to be primary",
                  commit.v, parting_text(common))};
}

// Uses only the epochs. The result is that of a match on both sides.
bool have_parted(const History& here, ReplicaId other, const NodeState& there) {
  if (here.one_chain) return false;
  const EpochEntry &ours = here.newest, &theirs = there.epoch;
  if (ours.epoch.id.is_nil() || theirs.epoch.id.is_nil()) return false;
  if ((ours.in_sync & set_of(other)) || (theirs.in_sync & set_of(here.replica))) return false;
  if (there.epochs.holds(ours.epoch) || here.epochs.holds(theirs.epoch)) return false;
  auto common = std::find_if(here.epochs.rbegin(), here.epochs.rend(),
                             [&](const EpochEntry& e) { return there.epochs.holds(e.epoch); });
  if (common == here.epochs.rend()) return false;
  Lsn from = common->start;
  Successors behind_there = successors_behind(from, there.epochs, ours.epoch);
  Successors behind_here = successors_behind(from, here.epochs, theirs.epoch);
  bool lost_there = acknowledged_to_nobody(here, from, behind_there.witnesses);
  return !covers(false, other, theirs.epoch, behind_there, ours, here.epochs.by_force_behind(from),
                 lost_there) &&
         !covers(false, here.replica, ours.epoch, behind_here, theirs, there.epochs.by_force_behind(from),
                 false);
}

bool holds_source(const History& here, const Offer& offer) {
  const auto* part = here.incomplete ? std::get_if<Syncing>(&*here.incomplete) : nullptr;
  if (!part) return true;
  const Uuid& source = part->source.id;
  return source == offer.epoch.id || std::any_of(offer.epochs.begin(), offer.epochs.end(),
                                                 [&](const EpochEntry& e) { return e.epoch.id == source; });
}

bool content_reaches(const History& here, const Offer& offer, Lsn since, bool record_held) {
  if (here.incomplete) {
    const auto* damaged = std::get_if<Damaged>(&*here.incomplete);
    std::optional<LogPoint> base = damaged ? damaged->base : std::get<Syncing>(*here.incomplete).base;
    return base && since <= base->lsn && history_holds(offer.epochs, offer.from, base->epoch, base->lsn);
  }
  Lsn common = common_history(here.epochs, here.last, offer.epochs, offer.from);
  if (since > common || here.commit > common) return false;
  return record_held;
}

bool vouches_for(const NodeState& target, std::span<const EpochEntry> held, Lsn last,
                 std::span<const EpochEntry> offered) {
  return target.base && !maybe_forced_behind(offered, target.base->lsn) &&
         history_holds(held, last, target.base->epoch, target.base->lsn);
}

// Names the newest epoch of the chain that excludes this replica: logs that end later have it as a member.
// The search ends at a forced or lossy epoch, and then names the newest epoch. Epochs that are only in other
// logs will be cut off, so the new epoch takes over their flags.
Grounds grounds_of_promotion(const PromotionFacts& facts) {
  Epoch named = facts.newest.epoch;
  std::uint32_t carried = 0;
  if (forcers_unknown_to(facts.epochs, facts.chain) != 0) carried |= epoch_by_force;
  for (std::size_t i = facts.chain.size(); i > 0; --i) {
    const EpochEntry& e = facts.chain[i - 1];
    if (!facts.epochs.holds(e.epoch)) carried |= e.flags & (epoch_by_force | epoch_lossy);
    if (!(e.in_sync & set_of(facts.replica))) {
      named = e.epoch;
      break;
    }
    if (e.flags & (epoch_by_force | epoch_lossy)) break;
  }
  std::uint32_t flags = carried;
  if (facts.by_force)
    flags |= epoch_by_force | (facts.whole ? 0 : std::uint32_t{epoch_lossy});
  else if (facts.witnessed)
    flags |= epoch_witnessed;
  return {flags, mark_of(named)};
}

bool maybe_forced_behind(std::span<const EpochEntry> epochs, Lsn lsn) {
  return successors_behind(lsn, epochs, {}).by_force;
}

bool history_holds(std::span<const EpochEntry> epochs, Lsn end, const Epoch& epoch, Lsn lsn) {
  if (lsn.v == 0) return true;
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    if (epochs[i].epoch != epoch) continue;
    Lsn last = i + 1 < epochs.size() ? Lsn{epochs[i + 1].start.v - 1} : end;
    return epochs[i].start <= lsn && lsn <= std::min(last, end);
  }
  return false;
}

Lsn common_history(std::span<const EpochEntry> a, Lsn a_end, std::span<const EpochEntry> b, Lsn b_end) {
  Lsn common;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].start > a_end) continue;
    for (std::size_t j = 0; j < b.size(); ++j) {
      if (b[j].epoch != a[i].epoch || b[j].start != a[i].start) continue;
      Lsn a_last = i + 1 < a.size() ? std::min(a_end, Lsn{a[i + 1].start.v - 1}) : a_end;
      Lsn b_last = j + 1 < b.size() ? std::min(b_end, Lsn{b[j + 1].start.v - 1}) : b_end;
      common = std::min(a_last, b_last);
    }
  }
  return common;
}

std::string parting_text(Lsn common) {
  if (common == Lsn{}) return "no common record is known";
  return fmt::format("the last common record is {}", common.v);
}

}  // namespace twinloft::repl::core
