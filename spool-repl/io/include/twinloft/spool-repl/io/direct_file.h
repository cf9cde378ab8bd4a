// Files and block devices without the page cache, and synchronous access to them before and after the event
// loop runs (recovery, `create`, offline tools).
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
  // False: the file system refuses O_DIRECT (tmpfs before Linux 6.6, some overlay and FUSE file systems).
  // Reads and writes then use the page cache, which is correct but slower. The caller logs a warning.
  bool direct = true;
  std::uint32_t alignment = 4096;  // bytes, at most 4096: of offsets, lengths and memory of direct I/O
};

enum class Access { read_only, read_write };

// Opens an existing regular file or block device. With read_write, a block device is claimed exclusively
// (O_EXCL: EBUSY while it is mounted or part of another device), and a file is locked against other processes
// of Twinloft. Errors: Errc::not_found, Errc::denied, Errc::unavailable (in use), Errc::invalid (neither a
// file nor a block device, or blocks larger than 4096 bytes).
Result<DirectFile> open_direct(const std::string& path, Access access);

// Makes the content of a new file and its entry in `directory` durable.
Status make_durable(int fd, const std::string& directory);

// Whether this errno of fallocate(2) means that the file system or the device cannot punch holes or zero
// ranges. The caller then writes zeros.
bool cannot_zero(int error);

class UringLoop;

class OsBlockFile final : public ports::BlockFile {
 public:
  explicit OsBlockFile(DirectFile& file);  // `file` must outlive this object
  ~OsBlockFile() override;
  std::uint64_t size_bytes() const override { return file_.size_bytes; }
  std::string name() const override { return file_.path; }
  Status read(std::uint64_t offset, MutableByteSpan out) override;
  Status write(std::uint64_t offset, ByteSpan data) override;
  Status write_zeros(std::uint64_t offset, std::uint64_t bytes) override;
  Status sync() override;
  // Up to 128 pieces at a time, by io_uring if the kernel allows it. Errors: as of read() and write().
  Status read_all(std::span<const Piece> pieces) override;
  Status write_all(std::span<const Piece> pieces) override;

 private:
  bool has_loop();
  Status many(bool writes, std::span<const Piece> pieces);

  DirectFile& file_;
  OsClock clock_;
  std::unique_ptr<UringLoop> loop_;  // created by the first use
  bool without_loop_ = false;
};

}  // namespace twinloft::repl::io
