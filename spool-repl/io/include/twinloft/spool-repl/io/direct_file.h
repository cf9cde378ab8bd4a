// Files and block devices opened for use without the page cache, and a synchronous view of them for the time
// before and after the event loop (recovery, `create`, offline tools).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::io {

struct DirectFile {
  std::string path;
  Fd fd;
  std::uint64_t size_bytes = 0;
  bool block_device = false;
  // False where the file system refuses O_DIRECT (tmpfs before Linux 6.6, some overlay and FUSE file
  // systems): reads and writes then go through the page cache. Correct, slower, and worth a warning.
  bool direct = true;
  std::uint32_t alignment = 4096;  // offsets, lengths and memory of direct I/O must be multiples of this; <=
                                   // 4096
};

enum class Access { read_only, read_write };

// Opens an existing regular file or block device. A block device that is to be written is claimed exclusively
// (O_EXCL: EBUSY while it is mounted or part of another device), a file is locked against a second process of
// ours. Errors: not_found, denied, unavailable (in use), invalid (neither file nor block device, or larger
// blocks than 4096).
Result<DirectFile> open_direct(const std::string& path, Access access);

// A new file's content and its entry in `directory` are on the disk when this returns.
Status make_durable(int fd, const std::string& directory);

// Whether this errno of fallocate(2) says that a file system or device can neither punch holes nor zero
// ranges: then zeros are written.
bool cannot_zero(int error);

class UringLoop;

class OsBlockFile final : public ports::BlockFile {
 public:
  explicit OsBlockFile(DirectFile& file);  // `file` must outlive this
  ~OsBlockFile() override;
  std::uint64_t size_bytes() const override { return file_.size_bytes; }
  std::string name() const override { return file_.path; }
  Status read(std::uint64_t offset, MutableByteSpan out) override;
  Status write(std::uint64_t offset, ByteSpan data) override;
  Status write_zeros(std::uint64_t offset, std::uint64_t bytes) override;
  Status sync() override;
  // Up to 128 at a time, by io_uring where the kernel allows it. Errors are those of the single operation.
  Status read_all(std::span<const Piece> pieces) override;
  Status write_all(std::span<const Piece> pieces) override;

 private:
  bool has_loop();
  Status many(bool writes, std::span<const Piece> pieces);

  DirectFile& file_;
  OsClock clock_;
  std::unique_ptr<UringLoop> loop_;  // from the first use on
  bool without_loop_ = false;
};

}  // namespace twinloft::repl::io
