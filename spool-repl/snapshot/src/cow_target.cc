#include "twinloft/spool-repl/snapshot/cow_target.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "twinloft/base/check.h"

namespace twinloft::repl::snapshot {

namespace {

constexpr std::uint64_t buffer_blocks = ports::io_max_length / block_size + 1;  // a request may begin inside
                                                                                // a block

std::size_t words_for(const journal::Image& image) {
  return (image.size_bytes() / block_size + 63) / 64;
}

Status transfer_all(auto transfer, int fd, auto* bytes, std::size_t n, std::uint64_t offset,
                    const std::string& where) {
  while (n > 0) {
    ssize_t done = transfer(fd, bytes, n, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return fail_errno(done < 0 ? errno : EIO, "{}: the overlay of the image", where);
    bytes += done;
    n -= static_cast<std::size_t>(done);
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<CowTarget>> CowTarget::create(const journal::Image& image,
                                                     const std::string& directory) {
  Fd overlay(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!overlay)
    return fail_errno(errno, "{}: no temporary file can be made there for the overlay of the image",
                      directory);
  if (::ftruncate(overlay.get(), static_cast<off_t>(image.size_bytes())) != 0)
    return fail_errno(errno, "{}: no sparse file of {} bytes can be made there for the overlay of the image",
                      directory, image.size_bytes());
  std::size_t bytes = sizeof(Failure) + words_for(image) * sizeof(std::atomic<std::uint64_t>);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1, 0);
  if (memory == MAP_FAILED)
    return fail_errno(errno, "no memory for the map of an image of {} bytes", image.size_bytes());
  return std::unique_ptr<CowTarget>(
      new CowTarget(image, std::move(overlay), directory, Shared(memory, Unmap{bytes})));
}

void CowTarget::Unmap::operator()(void* memory) const {
  ::munmap(memory, bytes);
}

// The memory is zeroed, which is the initial state of both.
CowTarget::CowTarget(const journal::Image& image, Fd overlay, std::string directory, Shared shared)
    : image_(image),
      overlay_(std::move(overlay)),
      directory_(std::move(directory)),
      buffer_(buffer_blocks * block_size),
      shared_(std::move(shared)),
      failure_(static_cast<Failure*>(shared_.get())),
      changed_(reinterpret_cast<std::atomic<std::uint64_t>*>(failure_ + 1), words_for(image)) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
  static_assert(sizeof(Failure) % alignof(std::atomic<std::uint64_t>) == 0);
}

void CowTarget::submit(ports::IoRequest& r) {
  Status done = perform(r);
  r.error = done ? 0 : done.error().sys == ENOSPC ? ENOSPC : EIO;
  if (!done) note_failure(done.error());
  r.done(r);
}

void CowTarget::note_failure(const Error& error) {
  int none = Failure::none;
  if (!failure_->state.compare_exchange_strong(none, Failure::being_written)) return;
  failure_->sys = error.sys;
  std::size_t n = std::min(error.message.size(), sizeof failure_->text - 1);
  std::memcpy(failure_->text, error.message.data(), n);
  failure_->text[n] = '\0';
  failure_->state.store(Failure::told, std::memory_order_release);
}

// Nothing has to be durable, since all of it can be made again.
Status CowTarget::perform(ports::IoRequest& r) {
  TL_CHECK(r.offset + r.length <= size_bytes());
  switch (r.op) {
    case ports::IoOp::read:
      return read(r.offset, {r.data, r.length});
    case ports::IoOp::write:
      return write(r.offset, {r.data, r.length});
    case ports::IoOp::flush:
      return {};
    case ports::IoOp::trim:
    case ports::IoOp::write_zeroes:
      return zero(r.offset, r.length);
  }
  return fail(Errc::internal, "an unknown kind of request");
}

Status CowTarget::read_blocks(std::uint64_t lba, MutableByteSpan out) {
  std::uint64_t end = lba + out.size() / block_size;
  while (lba < end) {
    bool here = is_changed(lba);
    std::uint64_t stop = lba + 1;
    while (stop < end && is_changed(stop) == here) ++stop;
    MutableByteSpan part = out.first((stop - lba) * block_size);
    if (here)
      TL_TRY(transfer_all(::pread, overlay_.get(), part.data(), part.size(), lba * block_size, directory_));
    else
      TL_TRY(image_.read(lba * block_size, part));
    out = out.subspan(part.size());
    lba = stop;
  }
  return {};
}

Status CowTarget::write_blocks(std::uint64_t lba, ByteSpan data) {
  TL_TRY(transfer_all(::pwrite, overlay_.get(), data.data(), data.size(), lba * block_size, directory_));
  mark(lba, data.size() / block_size);
  return {};
}

Status CowTarget::read(std::uint64_t offset, MutableByteSpan out) {
  if (out.empty()) return {};
  std::uint64_t first = offset / block_size, end = (offset + out.size() + block_size - 1) / block_size;
  MutableByteSpan blocks = buffer_.span().first((end - first) * block_size);
  TL_TRY(read_blocks(first, blocks));
  std::memcpy(out.data(), blocks.data() + offset % block_size, out.size());
  return {};
}

// If a request begins or ends inside a block, the rest of the block is read first.
Status CowTarget::write(std::uint64_t offset, ByteSpan data) {
  if (data.empty()) return {};
  std::uint64_t first = offset / block_size, end = (offset + data.size() + block_size - 1) / block_size;
  MutableByteSpan blocks = buffer_.span().first((end - first) * block_size);
  if (offset % block_size != 0) TL_TRY(read_blocks(first, blocks.first(block_size)));
  if ((offset + data.size()) % block_size != 0) TL_TRY(read_blocks(end - 1, blocks.last(block_size)));
  std::memcpy(blocks.data() + offset % block_size, data.data(), data.size());
  return write_blocks(first, blocks);
}

Status CowTarget::zero(std::uint64_t offset, std::uint64_t bytes) {
  static constexpr std::byte nothing[block_size] = {};
  std::uint64_t head = std::min(bytes, (block_size - offset % block_size) % block_size);
  TL_TRY(write(offset, {nothing, head}));
  offset += head, bytes -= head;
  TL_TRY(zero_blocks(offset / block_size, bytes / block_size));
  std::uint64_t tail = bytes % block_size;
  return write(offset + bytes - tail, {nothing, tail});
}

Status CowTarget::zero_blocks(std::uint64_t lba, std::uint64_t blocks) {
  if (blocks == 0) return {};
  if (::fallocate(overlay_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(lba * block_size), static_cast<off_t>(blocks * block_size)) != 0)
    return fail_errno(errno, "{}: the overlay of the image cannot be punched", directory_);
  mark(lba, blocks);
  return {};
}

void CowTarget::mark(std::uint64_t lba, std::uint64_t blocks) {
  for (std::uint64_t end = lba + blocks; lba < end; ++lba)
    changed_[lba / 64].fetch_or(std::uint64_t{1} << lba % 64, std::memory_order_relaxed);
}

bool CowTarget::changed(std::uint64_t lba, std::uint64_t blocks) const {
  std::uint64_t end = std::min(lba + blocks, size_bytes() / block_size);
  for (; lba < end; ++lba)
    if (is_changed(lba)) return true;
  return false;
}

std::optional<Error> CowTarget::failure() const {
  if (failure_->state.load(std::memory_order_acquire) != Failure::told) return std::nullopt;
  return Error{Errc::io, failure_->text, failure_->sys};
}

}  // namespace twinloft::repl::snapshot
