// Copies records that far replicas lack from the journal to the spill, before the journal's tail passes them,
// and drops what no far replica needs.
//
//   idle --records are due--> reading them --all read--> read --no write in flight--> idle, and a write in
//   flight
//
// A chunk counts only once it is durable. Then the tail may pass its records (FarBuffers::hold).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "volume.h"

namespace twinloft::repl::core {

class Spiller {
 public:
  explicit Spiller(Volume& volume) : v_(volume) {}
  Spiller(const Spiller&) = delete;
  Spiller& operator=(const Spiller&) = delete;

  // The chunks that an earlier process has left.
  void load(const std::vector<SpillChunk>& chunks);
  void advance();
  void on_journal_read(std::uint64_t part, int error, const std::vector<std::byte>& bytes);
  void on_written(std::uint64_t number, int error);
  std::optional<Instant> next_tick() const;

 private:
  struct Filling {
    SpillIndex::Held held;
    std::vector<std::byte> bytes;                                   // header and records
    std::vector<std::pair<std::size_t, std::uint32_t>> parts = {};  // where each journal read goes
    std::size_t reads_left = 0;
    int error = 0;
  };
  void drop();
  bool is_due(RecordNo from) const;
  void start(RecordNo from);
  void finish_filling();
  std::string verify(const Filling& f) const;
  void fail(const std::string& why);

  Volume& v_;
  std::optional<Filling> filling_;
  std::optional<SpillIndex::Held> writing_;
  Instant writing_since_{};
  std::uint64_t next_number_ = 1, dropped_ = 0;  // chunks before `dropped_` are gone
  std::optional<Instant> retry_at_;
};

}  // namespace twinloft::repl::core
