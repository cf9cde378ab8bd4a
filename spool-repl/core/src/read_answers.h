// The answers of a member to a primary that balances its reads (read_balance.h). repair.h has the proof that
// such an answer is right.
//
// A question waits until this replica has committed as much as the question names, and everything that the
// data area here may hold. Then it waits for its reads. It is dropped with its connection. It is declined
// after balanced_read_timeout, and at once if this replica cannot supply a block.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "repair.h"

namespace twinloft::repl::core {

class ReadAnswers {
 public:
  ReadAnswers(Volume& volume, Repair& repair) : v_(volume), repair_(repair) {}

  void ask(ReplicaId from, const ReadBlocks& question);
  void on_read(std::uint64_t token_number, int error);
  bool busy() const { return !questions_.empty(); }
  // streams: of a secondary, that from its primary.
  void advance(std::span<const Stream> streams);
  std::optional<Instant> next_tick() const;

 private:
  static constexpr std::ptrdiff_t questions_max = 256;  // of each peer
  static constexpr std::uint64_t said_max = 16u << 20;  // bytes of answers between two outputs
  struct Question {
    ReplicaId peer = 0;
    std::uint64_t connection = 0;
    ReadBlocks asked;
    Instant until;
    std::vector<std::optional<Slot>> slots;  // of the blocks that are read from the data area
    struct Run {
      Lba lba;
      std::uint32_t blocks = 0;
    };
    std::vector<Run> runs;  // the reads
    unsigned outstanding = 0;
    std::uint64_t home_changes = 0;
    unsigned rounds = 0;  // of reads
    bool failed = false;  // a read
    bool apart = false;   // each block is read alone, after an error, to find those that are unreadable
    bool read = false;    // the reads have ended
    bool done = false;
  };
  void step(std::uint64_t number, Question& question, std::span<const Stream> streams);
  void read(std::uint64_t number, Question& question);
  void answer(Question& question);
  void decline(Question& question);
  bool gone(const Question& question, std::span<const Stream> streams) const;
  bool may_say(std::uint64_t bytes);
  // nullptr: the content is not known, and the question is declined or begins anew.
  const std::byte* content(Question& question, std::uint32_t i, bool& stale);
  void release(Question& question);

  Volume& v_;
  Repair& repair_;
  std::map<std::uint64_t, Question> questions_;  // in order of arrival
  std::uint64_t last_ = 0;
  std::uint64_t said_ = 0, said_in_ = 0;  // bytes, and the number of the output
};

}  // namespace twinloft::repl::core
