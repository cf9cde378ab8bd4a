// A disk in memory. Its reads and writes are counted, and can be made to fail.
#pragma once

#include <functional>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl {

class MemoryFile final : public ports::BlockFile {
 public:
  explicit MemoryFile(std::vector<std::byte> content, std::string name = "memory")
      : bytes(std::move(content)), name_(std::move(name)) {}
  std::uint64_t size_bytes() const override { return bytes.size(); }
  std::string name() const override { return name_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override {
    check(offset, out.size());
    if (fails && fails(offset, out.size(), false)) return fail_errno(EIO, "{}: reading at {}", name_, offset);
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  }
  Status write(std::uint64_t offset, ByteSpan data) override {
    check(offset, data.size());
    if (fails && fails(offset, data.size(), true)) return fail_errno(EIO, "{}: writing at {}", name_, offset);
    std::memcpy(bytes.data() + offset, data.data(), data.size());
    writes++;
    unsynced++;
    return {};
  }
  Status write_zeros(std::uint64_t offset, std::uint64_t count) override {
    std::vector<std::byte> zeros(count);
    return write(offset, zeros);
  }
  Status sync() override {
    if (sync_fails) return fail_errno(EIO, "{}: syncing", name_);
    unsynced = 0;
    return {};
  }

  std::vector<std::byte> bytes;
  std::function<bool(std::uint64_t offset, std::uint64_t count, bool write)> fails;
  bool sync_fails = false;
  std::uint64_t writes = 0, unsynced = 0;

 private:
  void check(std::uint64_t offset, std::uint64_t count) const {
    TL_CHECK(offset % 4096 == 0 && count % 4096 == 0);
    TL_CHECK(offset + count <= bytes.size());
  }
  std::string name_;
};

}  // namespace twinloft::repl
