// The operations of the only file.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "session.h"

namespace twinloft::repl::fuse {

namespace {

constexpr double attributes_valid_seconds = 3600;
constexpr std::uint32_t range_piece_bytes = 1u << 30;  // of a trim or zero range for the target

FuseExport::State& state_of(fuse_req_t request) {
  return *static_cast<FuseExport::State*>(fuse_req_userdata(request));
}

void reply_error(fuse_req_t request, int error) {
  ++state_of(request).counters.requests;
  fuse_reply_err(request, error);
}

void op_init(void* userdata, fuse_conn_info* conn) {
  auto& state = *static_cast<FuseExport::State*>(userdata);
  // Data is copied out of the session's one buffer while other requests are in flight, so no splicing.
  conn->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
                                       FUSE_CAP_WRITEBACK_CACHE);
  conn->want |= conn->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ);
  conn->max_write = ports::io_max_length;
  conn->max_read = ports::io_max_length;
  conn->max_background = state.options.max_background;
  conn->congestion_threshold = state.options.max_background * 3 / 4;
}

void reply_attributes(fuse_req_t request) {
  struct stat st{};
  state_of(request).fill_attributes(st);
  ++state_of(request).counters.requests;
  fuse_reply_attr(request, &st, attributes_valid_seconds);
}

void op_getattr(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  reply_attributes(request);
}

void op_setattr(fuse_req_t request, fuse_ino_t, struct stat* wanted, int to_set, fuse_file_info*) {
  constexpr int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
                        FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_CTIME;
  if ((to_set & ~(times | FUSE_SET_ATTR_SIZE)) != 0) return reply_error(request, EPERM);
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0 &&
      static_cast<std::uint64_t>(wanted->st_size) != state_of(request).target.size_bytes())
    return reply_error(request, EPERM);
  reply_attributes(request);
}

void op_open(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  // libfuse 3.14 cannot express FOPEN_PARALLEL_DIRECT_WRITES, so the kernel's own structure is sent. Without
  // that flag the kernel submits direct writes one at a time.
  fuse_open_out out{};
  out.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  ++state_of(request).counters.requests;
  fuse_reply_buf(request, reinterpret_cast<const char*>(&out), sizeof out);
}

void op_done_at_once(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  reply_error(request, 0);
}

// The loop device closes the file when it is detached.
void op_release(fuse_req_t request, fuse_ino_t, fuse_file_info*) {
  auto& state = state_of(request);
  reply_error(request, 0);
  if (state.options.changed && !state.stopping)
    state.loop.post([changed = state.options.changed, watched = std::weak_ptr(state.alive)] {
      if (!watched.expired()) changed();
    });
}

void op_read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset, fuse_file_info*) {
  auto& state = state_of(request);
  std::uint64_t end = state.target.size_bytes();
  auto at = static_cast<std::uint64_t>(offset);
  if (offset < 0 || size > ports::io_max_length) return reply_error(request, EINVAL);
  if (at >= end || size == 0) {
    ++state.counters.requests;
    fuse_reply_buf(request, nullptr, 0);
    return;
  }
  auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(size, end - at));
  auto buffer = state.pool.take(length);
  if (!buffer) return reply_error(request, ENOMEM);
  state.submit(request, ports::IoOp::read, at, length, std::move(buffer));
}

void fail_write(fuse_req_t request, int error) {
  ++state_of(request).counters.requests;
  ++state_of(request).counters.errors;
  state_of(request).refuse_write(request, error);
}

void op_write(fuse_req_t request, fuse_ino_t, const char* data, size_t size, off_t offset,
              fuse_file_info* file) {
  auto& state = state_of(request);
  std::uint64_t end = state.target.size_bytes();
  auto at = static_cast<std::uint64_t>(offset);
  // An invalid write was not accepted, so later flushes need not fail for it.
  if (offset < 0 || size > ports::io_max_length) return reply_error(request, EINVAL);
  if (at > end || size > end - at) return reply_error(request, ENOSPC);
  if (size == 0) {
    ++state.counters.requests;
    fuse_reply_write(request, 0);
    return;
  }
  auto buffer = state.pool.take(size);
  if (!buffer) return fail_write(request, ENOMEM);
  std::memcpy(buffer.data(), data, size);
  // The kernel sends no FSYNC behind a direct write to a file that was opened with O_SYNC or O_DSYNC.
  bool fua = file && (file->flags & (O_SYNC | O_DSYNC)) != 0;
  state.submit(request, ports::IoOp::write, at, static_cast<std::uint32_t>(size), std::move(buffer), 0, fua);
}

void op_fsync(fuse_req_t request, fuse_ino_t, int, fuse_file_info*) {
  if (state_of(request).write_lost) return reply_error(request, EIO);
  state_of(request).submit(request, ports::IoOp::flush, 0, 0, {});
}

void op_fallocate(fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t length, fuse_file_info*) {
  auto& state = state_of(request);
  ports::IoOp op;
  if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
    op = ports::IoOp::trim;
  else if ((mode & ~FALLOC_FL_KEEP_SIZE) == FALLOC_FL_ZERO_RANGE)
    op = ports::IoOp::write_zeroes;
  else
    return reply_error(request, EOPNOTSUPP);
  std::uint64_t end = state.target.size_bytes();
  if (offset < 0 || length <= 0) return reply_error(request, EINVAL);
  auto at = static_cast<std::uint64_t>(offset);
  auto left = static_cast<std::uint64_t>(length);
  if (op == ports::IoOp::write_zeroes && (at > end || left > end - at)) return reply_error(request, ENOSPC);
  if (at >= end) return reply_error(request, 0);  // nothing to punch beyond the end
  left = std::min(left, end - at);
  auto first = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, range_piece_bytes));
  state.submit(request, op, at, first, {}, left - first);
}

void op_statfs(fuse_req_t request, fuse_ino_t) {
  auto& state = state_of(request);
  struct statvfs out{};
  out.f_bsize = out.f_frsize = 4096;  // also the loop device's discard granularity
  out.f_blocks = state.target.size_bytes() / 4096;
  out.f_files = 1;
  out.f_namemax = 255;
  ++state.counters.requests;
  fuse_reply_statfs(request, &out);
}

}  // namespace

const fuse_lowlevel_ops& operations() {
  static const fuse_lowlevel_ops ops = [] {
    fuse_lowlevel_ops o{};
    o.init = op_init;
    o.getattr = op_getattr;
    o.setattr = op_setattr;
    o.open = op_open;
    o.read = op_read;
    o.write = op_write;
    o.flush = op_done_at_once;  // a close does not make data durable; fsync does
    o.release = op_release;
    o.fsync = op_fsync;
    o.statfs = op_statfs;
    o.fallocate = op_fallocate;
    return o;
  }();
  return ops;
}

}  // namespace twinloft::repl::fuse
