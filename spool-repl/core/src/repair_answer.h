// The answers to other replicas that cannot read a block of their own data area. repair.h has the proof that
// the answers are right.
//
// A question waits until this replica has committed as much as the asking replica, and everything that the
// data area here may hold. Then it waits for one read. A question is dropped with its connection, after
// fetch_timeout, or when the peer has sent questions_max later questions.
#pragma once

#include <deque>
#include <map>
#include <span>

#include "repair.h"

namespace twinloft::repl::core {

class RepairAnswers {
 public:
  RepairAnswers(Volume& volume, Repair& repair) : v_(volume), repair_(repair) {}

  void ask(ReplicaId from, const FetchBlock& question);
  void on_read(std::uint64_t token_number, int error);
  bool busy() const { return !questions_.empty(); }
  bool idle() const { return questions_.empty() && reads_.empty(); }
  void advance(std::span<const Stream> streams);
  std::optional<Instant> next_tick() const;

 private:
  static constexpr std::ptrdiff_t questions_max = 64;  // of each peer
  struct Question {
    ReplicaId peer = 0;
    std::uint64_t connection = 0;
    FetchBlock asked;
    Instant until;
    std::uint64_t read = 0;  // number of the read in flight; 0: none
    std::uint64_t home_changes = 0;
    bool answered = false;
  };
  void step(Question& question, std::span<const Stream> streams);
  void read(Question& question);
  void answer(Question& question, FetchedBlock::Kind kind, const std::byte* content = nullptr);

  Volume& v_;
  Repair& repair_;
  std::deque<Question> questions_;
  std::map<std::uint64_t, Slot> reads_;  // also of questions that were dropped
  std::uint64_t last_read_ = 0;
};

}  // namespace twinloft::repl::core
