// The state of this replica's content in this process, and the state for the superblock.
//
//   Consistent --note_refill--> Refilling --refilled--> Consistent
//   any --begin_sync--> Syncing
//   Damaged (only a start finds it), Syncing --finish--> Finishing --finished--> Consistent
//   Refilling, Damaged --accept_loss--> AcceptingLoss --loss_settled--> Consistent
//
// The two differ in two states, which exist in memory alone:
// - Finishing: all content is durable, and the superblock with this state is being written. Until it is
//   durable, a start finds the replica inconsistent, so it does not count as complete, and follows no new
//   primary.
// - AcceptingLoss: this replica was promoted in spite of a loss, and its content is the volume. Until the
//   record of the promotion is durable, a start finds the loss again.
#pragma once

#include "twinloft/spool-repl/format/disk_state.h"

namespace twinloft::repl::core {

class DiskCondition {
 public:
  explicit DiskCondition(const DiskState& found);

  // The state for the next superblock.
  DiskState stored() const;

  // Whether the data area is not a state of the volume, or a start would treat it so: Damaged, Syncing or
  // Finishing.
  bool inconsistent() const;
  // nullptr: another state.
  const disk_state::Refilling* refilling() const { return std::get_if<disk_state::Refilling>(&state_); }
  const disk_state::Damaged* damaged() const { return std::get_if<disk_state::Damaged>(&state_); }
  const disk_state::Syncing* syncing() const { return std::get_if<disk_state::Syncing>(&state_); }
  bool accepting_loss() const { return std::holds_alternative<AcceptingLoss>(state_); }
  bool finishing() const { return std::holds_alternative<Finishing>(state_); }
  // The point up to which Damaged or Syncing content is known to be a history. nullopt: unknown, or another
  // state.
  std::optional<LogPoint> base() const;

  void begin_sync(const Epoch& source, const std::optional<LogPoint>& base);
  // Syncing continues from another source. keep_base false: the content is unknown from now on.
  void change_source(const Epoch& source, bool keep_base);
  // Content of the new source may be written home only once its name is durable.
  bool source_pending() const { return source_pending_; }
  void source_durable() { source_pending_ = false; }

  // A primary of `epoch` has seen acknowledgements of this replica up to `until`, in the epoch `of`, which
  // are not here.
  void note_refill(Lsn until, const Epoch& epoch, const Epoch& of);
  void refilled();

  void finish();
  // The superblock with Consistent is durable. A state that has begun meanwhile stays.
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
