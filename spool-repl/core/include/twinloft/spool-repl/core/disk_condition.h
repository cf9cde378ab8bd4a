// What the content of this replica counts for in this process, and what the superblock is to say of it.
//
//   Consistent --note_refill--> Refilling --refilled--> Consistent
//   any --begin_sync--> Syncing
//   Damaged (only a start finds it), Syncing --finish--> Finishing --finished--> Consistent
//   Refilling, Damaged --accept_loss--> AcceptingLoss --loss_settled--> Consistent
//
// The two differ in the two states that exist in memory only:
// - Finishing: all content is durable, and the superblock that says so is under way. Until it is durable a
//   start finds the replica inconsistent, so nobody counts on it, and it follows no new primary.
// - AcceptingLoss: this replica was promoted in spite of a loss, and its content is the volume. Until the
//   record that makes the promotion known is durable, a start finds the loss again.
#pragma once

#include "twinloft/spool-repl/format/disk_state.h"

namespace twinloft::repl::core {

class DiskCondition {
 public:
  explicit DiskCondition(const DiskState& found);

  // What the next superblock says.
  DiskState stored() const;

  // The data area is no state of the volume, or a start would find it so: Damaged, Syncing or Finishing.
  bool inconsistent() const;
  // nullptr: another state.
  const disk_state::Refilling* refilling() const { return std::get_if<disk_state::Refilling>(&state_); }
  const disk_state::Damaged* damaged() const { return std::get_if<disk_state::Damaged>(&state_); }
  const disk_state::Syncing* syncing() const { return std::get_if<disk_state::Syncing>(&state_); }
  bool accepting_loss() const { return std::holds_alternative<AcceptingLoss>(state_); }
  bool finishing() const { return std::holds_alternative<Finishing>(state_); }
  // Up to where Damaged or Syncing content is known to be a history. nullopt: not known, or another state.
  std::optional<LogPoint> base() const;

  void begin_sync(const Epoch& source, const std::optional<LogPoint>& base);
  // Syncing goes on from another source. Without `keep_base` nothing is known of the content any more.
  void change_source(const Epoch& source, bool keep_base);
  // Content of the new source may go home only once its name is durable.
  bool source_pending() const { return source_pending_; }
  void source_durable() { source_pending_ = false; }

  // A primary of `epoch` has seen acknowledgements of this replica up to `until`, in the epoch `of`, which
  // are not here.
  void note_refill(Lsn until, const Epoch& epoch, const Epoch& of);
  void refilled();

  void finish();
  // The superblock that says Consistent is durable. Another state may have begun meanwhile: that stays.
  void finished();

  void accept_loss();
  void loss_settled();

  void check_invariants() const;

 private:
  using Consistent = disk_state::Consistent;
  using Refilling = disk_state::Refilling;
  using Damaged = disk_state::Damaged;
  using Syncing = disk_state::Syncing;
  struct AcceptingLoss {
    std::variant<Refilling, Damaged> lost;
  };
  struct Finishing {};
  using State = std::variant<Consistent, Refilling, Damaged, Syncing, AcceptingLoss, Finishing>;

  State state_;
  bool source_pending_ = false;
};

}  // namespace twinloft::repl::core
