// A simulated disk with a volatile write cache.
//
// `now` is what a read sees, `media` what a power cut leaves. Writes stand between the two until a sync; a power cut
// keeps, tears (at 512-byte sectors) or loses each of them on its own.
#pragma once

#include <deque>

#include "twinloft/base/random.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::sim {

class SimFile final : public ports::BlockFile {
 public:
  SimFile(std::string name, std::uint64_t bytes);

  std::uint64_t size_bytes() const override { return now_.size(); }
  std::string name() const override { return name_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override;
  Status write(std::uint64_t offset, ByteSpan data) override;
  Status write_zeros(std::uint64_t offset, std::uint64_t bytes) override;
  Status sync() override;

  // Number of the last write; sync_upto makes durable what had been written when this was read.
  std::uint64_t last_write() const { return next_write_ - 1; }
  void sync_upto(std::uint64_t write);
  void write_durable(std::uint64_t offset, ByteSpan data);  // as with O_DSYNC
  // A write that was under way when the power went: some of its sectors, in any combination.
  void tear(std::uint64_t offset, ByteSpan data, SeededRandom& random);
  void power_cut(SeededRandom& random);

 private:
  struct Unsynced {
    std::uint64_t number, offset;
    std::vector<std::byte> data;
  };
  std::string name_;
  std::vector<std::byte> now_, media_;
  std::deque<Unsynced> cache_;
  std::uint64_t next_write_ = 1;
};

}  // namespace twinloft::repl::sim
