// A file whose changes stay in memory: the writes of recovery do not change the file.
#pragma once

#include <unordered_map>
#include <vector>

#include "twinloft/spool-repl/format/types.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::power {

class Overlay final : public repl::ports::BlockFile {
 public:
  Overlay(int fd, std::uint64_t size, std::string name) : fd_(fd), size_(size), name_(std::move(name)) {}
  std::uint64_t size_bytes() const override { return size_; }
  std::string name() const override { return name_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override;
  Status write(std::uint64_t offset, ByteSpan data) override;
  Status write_zeros(std::uint64_t offset, std::uint64_t bytes) override;
  Status sync() override { return {}; }

 private:
  int fd_;
  std::uint64_t size_;
  std::string name_;
  std::unordered_map<std::uint64_t, std::vector<std::byte>> blocks_;  // empty: zeros
};

// Runs recovery on journal and data as they are. Compares the content that a primary would start from
// (everything up to the journal's end) with an image of the volume. Errc::conflict names the first block that
// differs.
Status recover_and_compare(Overlay& journal, Overlay& data, int image_fd, std::uint64_t image_bytes);

}  // namespace twinloft::power
