// A replica's image as a block device that can be written to: what is written goes to an overlay, a nameless temporary file, and
// the image stays as it is.
//
// Requests are answered on the thread that submits them; changed() and failure() may be asked from another one.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/image.h"
#include "twinloft/spool-repl/ports/block_target.h"

namespace twinloft::repl::snapshot {

class CowTarget final : public ports::BlockTarget {
 public:
  // The overlay lies in `directory` and has no name there: it goes with the process. It takes as much room as is written.
  static Result<std::unique_ptr<CowTarget>> create(const journal::Image& image, const std::string& directory);

  std::uint64_t size_bytes() const override { return image_.size_bytes(); }
  void submit(ports::IoRequest& request) override;

  // Whether any of these blocks was written here.
  bool changed(std::uint64_t lba, std::uint64_t blocks) const;
  // The first request that failed, and why.
  std::optional<Error> failure() const;

 private:
  CowTarget(const journal::Image& image, Fd overlay, std::string directory);
  Status perform(ports::IoRequest& request);
  Status read_blocks(std::uint64_t lba, MutableByteSpan out);
  Status write_blocks(std::uint64_t lba, ByteSpan data);
  Status read(std::uint64_t offset, MutableByteSpan out);
  Status write(std::uint64_t offset, ByteSpan data);
  Status zero(std::uint64_t offset, std::uint64_t bytes);
  Status zero_blocks(std::uint64_t lba, std::uint64_t blocks);
  void mark(std::uint64_t lba, std::uint64_t blocks);
  bool is_changed(std::uint64_t lba) const { return changed_[lba / 64] >> lba % 64 & 1; }

  const journal::Image& image_;
  Fd overlay_;
  std::string directory_;
  journal::AlignedBuffer buffer_;
  mutable std::mutex mutex_;            // guards what follows, for other threads; only submit() changes it
  std::vector<std::uint64_t> changed_;  // a bit a block
  std::optional<Error> failure_;
};

}  // namespace twinloft::repl::snapshot
