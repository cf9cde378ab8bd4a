// Disk operations of UringLoop.
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>

#include <cerrno>

#include "fixed_ops.h"
#include "twinloft/base/check.h"
#include "watch.h"

namespace twinloft::repl::io {

namespace {
// Removes the first `bytes` from `iov`, and empty elements.
void consume(iovec*& iov, unsigned& count, std::size_t bytes) {
  while (count > 0 && bytes >= iov->iov_len) {
    bytes -= iov->iov_len;
    ++iov;
    --count;
  }
  if (bytes == 0) return;
  TL_CHECK_MSG(count > 0, "the kernel transferred more than was requested");
  iov->iov_base = static_cast<char*>(iov->iov_base) + bytes;
  iov->iov_len -= bytes;
}
}  // namespace

void UringLoop::read(int fd, std::uint64_t offset, std::span<iovec> iov, DiskOp& op) {
  TL_CHECK_MSG(iov.size() <= IOV_MAX, "too many pieces of memory for one read");
  op.kind_ = DiskOp::Kind::read;
  op.fd_ = fd;
  op.offset_ = offset;
  op.iov_ = iov.data();
  op.iov_count_ = static_cast<unsigned>(iov.size());
  start(op);
}

void UringLoop::write(int fd, std::uint64_t offset, std::span<iovec> iov, bool rwf_dsync, DiskOp& op) {
  TL_CHECK_MSG(iov.size() <= IOV_MAX, "too many pieces of memory for one write");
  op.kind_ = DiskOp::Kind::write;
  op.dsync_ = rwf_dsync;
  op.fd_ = fd;
  op.offset_ = offset;
  op.iov_ = iov.data();
  op.iov_count_ = static_cast<unsigned>(iov.size());
  start(op);
}

void UringLoop::datasync(int fd, DiskOp& op) {
  op.kind_ = DiskOp::Kind::datasync;
  op.fd_ = fd;
  start(op);
}

void UringLoop::punch_hole(int fd, std::uint64_t offset, std::uint64_t bytes, DiskOp& op) {
  start_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes, op);
}

void UringLoop::zero_range(int fd, std::uint64_t offset, std::uint64_t bytes, DiskOp& op) {
  start_fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, bytes, op);
}

void UringLoop::start_fallocate(int fd, int mode, std::uint64_t offset, std::uint64_t bytes, DiskOp& op) {
  op.kind_ = DiskOp::Kind::fallocate;
  op.fd_ = fd;
  op.mode_ = mode;
  op.offset_ = offset;
  op.length_ = bytes;
  start(op);
}

void UringLoop::start(DiskOp& op) {
  TL_CHECK_MSG(op.done != nullptr && !op.in_flight_,
               "a disk operation needs `done` and must not be in flight");
  op.in_flight_ = true;
  op.result = 0;
  ++disk_ops_in_flight_;
  queue(op);
}

void UringLoop::queue(DiskOp& op) {
  io_uring_sqe* e = sqe();
  switch (op.kind_) {
    case DiskOp::Kind::read:
    case DiskOp::Kind::write:
      prepare_transfer(e, op);
      break;
    case DiskOp::Kind::datasync:
      io_uring_prep_fsync(e, op.fd_, IORING_FSYNC_DATASYNC);
      break;
    case DiskOp::Kind::fallocate:
      io_uring_prep_fallocate(e, op.fd_, op.mode_, static_cast<off_t>(op.offset_),
                              static_cast<off_t>(op.length_));
      break;
  }
  io_uring_sqe_set_data64(e, reinterpret_cast<std::uint64_t>(&op) | tag_disk);
}

void UringLoop::prepare_transfer(io_uring_sqe* e, const DiskOp& op) const {
  bool writes = op.kind_ == DiskOp::Kind::write;
  int area = registered_area(op);
  if (op.iov_count_ == 1 && op.iov_->iov_len <= INT_MAX) {
    auto length = static_cast<unsigned>(op.iov_->iov_len);
    if (writes)
      io_uring_prep_write(e, op.fd_, op.iov_->iov_base, length, op.offset_);
    else
      io_uring_prep_read(e, op.fd_, op.iov_->iov_base, length, op.offset_);
    if (area >= 0) e->opcode = writes ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
  } else {
    if (writes)
      io_uring_prep_writev(e, op.fd_, op.iov_, op.iov_count_, op.offset_);
    else
      io_uring_prep_readv(e, op.fd_, op.iov_, op.iov_count_, op.offset_);
    if (!fixed_vectors_) area = -1;
    if (area >= 0) e->opcode = writes ? op_writev_fixed : op_readv_fixed;
  }
  if (area >= 0) e->buf_index = static_cast<std::uint16_t>(area);
  if (writes && op.dsync_) e->rw_flags = RWF_DSYNC;
}

void UringLoop::on_disk(DiskOp& op, int res) {
  if (res == -EINTR) return queue(op);
  int result = res < 0 ? res : 0;
  if (res >= 0 && (op.kind_ == DiskOp::Kind::read || op.kind_ == DiskOp::Kind::write)) {
    consume(op.iov_, op.iov_count_, static_cast<std::size_t>(res));
    op.offset_ += static_cast<std::uint64_t>(res);
    if (op.iov_count_ > 0 && res > 0) return queue(op);
    if (op.iov_count_ > 0) result = op.kind_ == DiskOp::Kind::read ? -ENODATA : -EIO;
  }
  op.result = result;
  op.in_flight_ = false;
  --disk_ops_in_flight_;
  op.done(op);
}

}  // namespace twinloft::repl::io
