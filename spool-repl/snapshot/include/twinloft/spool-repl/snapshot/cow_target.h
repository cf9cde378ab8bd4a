// A replica's image as a block device that can be written to: what is written goes to an overlay, a nameless
// temporary file, and the image stays as it is.
//
// Requests are answered by the process that submits them; changed() and failure() tell of them in the process
// that it was forked from too.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/image.h"
#include "twinloft/spool-repl/ports/block_target.h"

namespace twinloft::repl::snapshot {

class CowTarget final : public ports::BlockTarget {
 public:
  // The overlay lies in `directory` and has no name there: it goes with the process. It takes as much room as
  // is written.
  static Result<std::unique_ptr<CowTarget>> create(const journal::Image& image, const std::string& directory);

  std::uint64_t size_bytes() const override { return image_.size_bytes(); }
  void submit(ports::IoRequest& request) override;

  // Whether any of these blocks was written here.
  bool changed(std::uint64_t lba, std::uint64_t blocks) const;
  // The first request that failed, and why.
  std::optional<Error> failure() const;

 private:
  // In memory that a forked process shares.
  struct Failure {
    enum State : int { none, being_written, told };
    std::atomic<int> state;
    int sys;
    char text[504];
  };
  struct Unmap {
    std::size_t bytes;
    void operator()(void* memory) const;
  };
  using Shared = std::unique_ptr<void, Unmap>;
  CowTarget(const journal::Image& image, Fd overlay, std::string directory, Shared shared);
  Status perform(ports::IoRequest& request);
  Status read_blocks(std::uint64_t lba, MutableByteSpan out);
  Status write_blocks(std::uint64_t lba, ByteSpan data);
  Status read(std::uint64_t offset, MutableByteSpan out);
  Status write(std::uint64_t offset, ByteSpan data);
  Status zero(std::uint64_t offset, std::uint64_t bytes);
  Status zero_blocks(std::uint64_t lba, std::uint64_t blocks);
  void mark(std::uint64_t lba, std::uint64_t blocks);
  bool is_changed(std::uint64_t lba) const {
    return changed_[lba / 64].load(std::memory_order_relaxed) >> lba % 64 & 1;
  }
  void note_failure(const Error& error);

  const journal::Image& image_;
  Fd overlay_;
  std::string directory_;
  journal::AlignedBuffer buffer_;
  Shared shared_;
  Failure* failure_;
  std::span<std::atomic<std::uint64_t>> changed_;  // a bit a block
};

}  // namespace twinloft::repl::snapshot
