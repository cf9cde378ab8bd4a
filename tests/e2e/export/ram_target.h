// A BlockTarget in memory that behaves like the worst of disks. Requests complete at once, later, or much
// later, in any order (by seed). Unflushed data is lost at cut().
#pragma once

#include <map>
#include <vector>

#include "twinloft/base/random.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl {

class RamTarget final : public ports::BlockTarget {
 public:
  RamTarget(ports::Loop& loop, std::uint64_t size_bytes, std::uint64_t seed);
  ~RamTarget() override;
  RamTarget(const RamTarget&) = delete;
  RamTarget& operator=(const RamTarget&) = delete;

  std::uint64_t size_bytes() const override { return size_bytes_; }
  void submit(ports::IoRequest& request) override;

  // The power fails and comes back: the content is what the last flush (or FUA) left, block by block. Returns
  // the number of lost blocks of 4096 bytes.
  std::uint64_t cut();

  std::uint64_t flushes = 0, fuas = 0, most_in_flight = 0;

 private:
  void complete(ports::IoRequest& request);
  void write(const ports::IoRequest& request);
  void make_durable(std::uint64_t first_block, std::uint64_t blocks);
  void complete_some();

  ports::Loop& loop_;
  std::uint64_t size_bytes_;
  SeededRandom random_;
  std::byte* volatile_;  // what reads see
  std::byte* durable_;   // what cut() restores
  std::vector<bool> dirty_;
  std::vector<ports::IoRequest*> waiting_;  // for the next turn
  bool turn_posted_ = false;
  std::uint64_t in_flight_ = 0;
};

}  // namespace twinloft::repl
