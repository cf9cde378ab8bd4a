// How a secondary becomes primary.
//
//   manual arbiter:   idle --ask--> claiming --all granted--> granted
//   external arbiter: idle --ask--> claiming --all connected granted--> reading --> swapping --> granted
//
// Claiming ends only when this replica has no work in flight, since a granted replica must become primary at
// once. Otherwise another replica could be promoted before. Soon after a start, claiming also waits for
// replicas that are not connected yet: one of them may be primary, even if the log here says that this
// replica was alone.
//
// A claim asks the other replicas not to be promoted in the meantime. Each sends its NodeState right before
// its reply. If two replicas claim at the same time, the replica with the higher id gives up.
#pragma once

#include <optional>
#include <vector>

#include "volume.h"

namespace twinloft::repl::core {

class Promotion {
 public:
  explicit Promotion(Volume& volume) : v_(volume) {}

  struct Granted {
    Epoch epoch;
    ReplicaSet in_sync = 0;
    std::optional<EpochValue> value;
    Grounds grounds;
    std::optional<Token> command;
    std::string text;
  };

  // `command`: gets a CommandDone. nullopt: the replica tries a promotion by itself, and reports no failure.
  void ask(std::optional<Token> command, bool force, bool accept_loss = false);
  bool accepts_damage() const { return busy() && accept_loss_ && v_.disk.inconsistent(); }
  bool busy() const { return phase_ != Phase::idle; }
  Instant started() const { return started_.value_or(Instant{}); }
  void note_start(Instant now) {
    if (!started_) started_ = now;
  }
  void on_arbiter(const ArbiterAnswer& answer);
  // From the other replica, while this node is secondary. `follows`: a primary is connected here.
  void handle(ReplicaId from, const Claim& claim, bool follows);
  void handle(ReplicaId from, const ClaimReply& reply);
  void peer_up(ReplicaId id);
  void peer_down(ReplicaId id);
  void peer_state(ReplicaId id, const NodeState& state);
  void give_up(const std::string& why);  // another primary has appeared
  void advance(bool settled);            // settled: the secondary has no work in flight
  std::optional<Instant> next_tick() const;
  std::optional<Granted> take() { return std::exchange(granted_, std::nullopt); }
  const std::string& why_not() const { return why_not_; }

  void check_invariants() const;

 private:
  enum class Phase { idle, claiming, reading, swapping };
  EpochEntry newest_known() const;
  std::string obstacle() const;
  std::string split_brain() const;
  std::string made_anew() const;
  std::string told_of_force(const EpochEntry& newest) const;
  std::string told_of_split_brains() const;
  bool may_hold_more(const Link& link) const;
  std::optional<Instant> looks_for_peers_until() const;
  bool looks_for_peers() const;
  std::string objection(ReplicaSet set) const;
  std::string arbiter_changed() const;
  std::string stranger_in(ReplicaSet set) const;
  bool forced() const;
  bool witnessed(ReplicaSet members) const;
  EpochTable chain_of(const EpochEntry& newest) const;
  Grounds grounds_after(const EpochEntry& newest) const;
  void claimed();
  void grant(const Epoch& epoch, ReplicaSet in_sync);
  void ask_arbiter(bool read);
  std::uint64_t next_counter() const { return v_.newest_epoch() + 1; }

  Volume& v_;
  Phase phase_ = Phase::idle;
  std::optional<Token> command_;
  bool force_ = false, accept_loss_ = false;
  Uuid attempt_;
  std::vector<ReplicaId> waiting_for_;
  Instant deadline_;
  std::optional<Instant> started_;  // time of the first tick()
  std::uint64_t arbiter_token_ = 0;
  std::optional<EpochValue> current_, desired_;
  bool outdated_ = false;  // `current_` is older than the newest known epoch
  std::optional<Instant> ask_again_;
  bool in_doubt_ = false;  // swapping, and an answer is missing
  std::optional<Granted> granted_;
  std::string why_not_;
  // The replica whose claim was granted. No other is granted until promised_until_, while it is connected.
  ReplicaId promised_to_ = 0;
  Instant promised_until_;
};

}  // namespace twinloft::repl::core
