// A replica's image as a block device that can be written: writes go to an overlay, a temporary file without
// a name, and the image is not changed.
//
// Requests are executed in the process that submits them, which may be a fork. changed() and failure() also
// cover them in the original process.
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
  // directory: of the overlay (open(2), O_TMPFILE), which disappears with the process and grows with the
  // writes. Errors: those of the directory.
  static Result<std::unique_ptr<CowTarget>> create(const journal::Image& image, const std::string& directory);

  std::uint64_t size_bytes() const override { return image_.size_bytes(); }
  void submit(ports::IoRequest& request) override;

  // Whether any of these blocks was written.
  bool changed(std::uint64_t lba, std::uint64_t blocks) const;
  // The error of the first failed request.
  std::optional<Error> failure() const;

 private:
  // In shared memory, for a forked process.
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
  std::span<std::atomic<std::uint64_t>> changed_;  // a bit for each block
};

}  // namespace twinloft::repl::snapshot
