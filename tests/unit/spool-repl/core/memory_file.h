// A BlockFile over a copy of a disk's bytes.
#pragma once

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::core {

class MemoryFile final : public ports::BlockFile {
 public:
  explicit MemoryFile(std::vector<std::byte> content) : bytes(std::move(content)) {}
  std::uint64_t size_bytes() const override { return bytes.size(); }
  std::string name() const override { return "memory"; }
  Status read(std::uint64_t offset, MutableByteSpan out) override {
    TL_CHECK(offset + out.size() <= bytes.size());
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  }
  Status write(std::uint64_t offset, ByteSpan data) override {
    TL_CHECK(offset + data.size() <= bytes.size());
    std::memcpy(bytes.data() + offset, data.data(), data.size());
    return {};
  }
  Status write_zeros(std::uint64_t offset, std::uint64_t count) override {
    TL_CHECK(offset + count <= bytes.size());
    std::memset(bytes.data() + offset, 0, count);
    return {};
  }
  Status sync() override { return {}; }

  std::vector<std::byte> bytes;
};

}  // namespace twinloft::repl::core
