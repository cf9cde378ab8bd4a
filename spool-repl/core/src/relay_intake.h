// A secondary that gets its records from a relay: asks for them, and compares each with the mark that the
// primary has sent for it. Only a record with the next mark is passed on.
//
//   TakeFrom --connected to the relay--> asked --Subscribed--> taking
//      |                                   |                     |
//      +-----------------------------------+---------------------+--> lost, until the next TakeFrom
//
// docs/decisions/relays.md
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "companion.h"
#include "volume.h"

namespace twinloft::repl::core {

class RelayIntake {
 public:
  explicit RelayIntake(Volume& volume) : v_(volume) {}

  // From now on, records come from this relay; 0: from the primary.
  void begin(ReplicaId primary, const TakeFrom& message);
  void end();                              // the primary is gone, or its records are refused
  std::string take(RecordMarks& message);  // the reason why the marks are wrong, or an empty text
  void handle(ReplicaId from, RecordMessage& message, std::uint64_t held);  // bytes of records not journaled
                                                                            // yet
  void handle(ReplicaId from, const Subscribed& message);
  void handle(ReplicaId from, const SubscriptionEnded& message);
  void peer_down(ReplicaId id);
  // The next record that is the primary's, if it is here.
  std::optional<RecordMessage> next();  // verified
  void ask();                           // the relay, once it is connected
  void flush_messages();
  std::optional<Instant> next_tick() const {
    return phase_ == Phase::waiting ? std::optional(wait_until_) : taken_waits_.next_tick();
  }
  ReplicaId relay() const { return relay_; }  // 0: none
  bool takes() const { return phase_ == Phase::taking; }
  bool settled() const { return bodies_.empty(); }

 private:
  // How long to wait for a connection to the relay. At a start, connections come one after the other.
  static constexpr Duration connect_patience = std::chrono::milliseconds(500);
  enum class Phase : std::uint8_t { none, waiting, asked, taking, lost };
  bool is_present(ReplicaId from, const Epoch& epoch, std::uint64_t seq) const;
  std::string why_not(const RecordMessage& message, const LogMark& mark) const;
  void lose(const std::string& why);
  void leave_relay();

  Volume& v_;
  Phase phase_ = Phase::none;
  ReplicaId primary_ = 0, relay_ = 0;
  Epoch epoch_;
  std::uint64_t seq_ = 0;
  Instant wait_until_;
  std::deque<LogMark> marks_;  // of the records that are awaited
  std::deque<RecordMessage> bodies_;
  std::uint64_t bytes_ = 0;  // of bodies_
  Taken told_;
  Companion taken_waits_;
};

}  // namespace twinloft::repl::core
