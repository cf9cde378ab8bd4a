#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "twinloft/spool-repl/io/direct_file.h"

namespace twinloft::repl::io {

bool cannot_zero(int error) {
  return error == EOPNOTSUPP || error == ENOSYS || error == ENODEV || error == EINVAL;
}

Status OsBlockFile::read(std::uint64_t offset, MutableByteSpan out) {
  while (!out.empty()) {
    ssize_t n = ::pread(file_.fd.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "{}: read of {} bytes at {}", file_.path, out.size(), offset);
    if (n == 0)
      return fail(Errc::corrupt, "{}: ends at {}, with {} bytes still expected", file_.path, offset,
                  out.size());
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status OsBlockFile::write(std::uint64_t offset, ByteSpan data) {
  while (!data.empty()) {
    ssize_t n = ::pwrite(file_.fd.get(), data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return fail_errno(n < 0 ? errno : EIO, "{}: write of {} bytes at {}", file_.path, data.size(), offset);
    data = data.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status OsBlockFile::write_zeros(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return {};
  // As in a running volume: a block device gets a TRIM that reads as zeros, and a file keeps its space.
  int mode = (file_.block_device ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) | FALLOC_FL_KEEP_SIZE;
  int rc;
  do rc = ::fallocate(file_.fd.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (rc != 0 && errno == EINTR);
  if (rc == 0) return {};
  if (!cannot_zero(errno)) return fail_errno(errno, "{}: zeroing {} bytes at {}", file_.path, bytes, offset);
  constexpr std::uint64_t piece = 1u << 20;
  std::unique_ptr<void, decltype(&std::free)> zeros(std::aligned_alloc(4096, piece), &std::free);
  if (!zeros) return fail_errno(ENOMEM, "{}: zeroing {} bytes", file_.path, bytes);
  std::memset(zeros.get(), 0, piece);
  for (std::uint64_t done = 0; done < bytes; done += piece)
    TL_TRY(write(offset + done, {static_cast<const std::byte*>(zeros.get()), std::min(piece, bytes - done)}));
  return {};
}

Status OsBlockFile::sync() {
  int rc;
  do rc = ::fdatasync(file_.fd.get());
  while (rc != 0 && errno == EINTR);
  if (rc != 0) return fail_errno(errno, "{}: fdatasync", file_.path);
  return {};
}

}  // namespace twinloft::repl::io
