#include "ring_codec.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "twinloft/base/check.h"
#include "uapi.h"

namespace twinloft::repl::fuse {

namespace {

constexpr std::uint64_t attributes_valid_seconds = 3600;
constexpr std::uint32_t page = 4096;

// A shorter structure of an older kernel reads as zeros behind its end.
template <class Structure>
Structure read_as(std::span<const std::byte> bytes) {
  Structure out{};
  std::memcpy(&out, bytes.data(), std::min(bytes.size(), sizeof out));
  return out;
}

template <class Structure>
std::size_t put(const Structure& value, std::span<std::byte> reply) {
  static_assert(sizeof value <= reply_bytes_max);
  TL_CHECK(reply.size() >= sizeof value);
  std::memcpy(reply.data(), &value, sizeof value);
  return sizeof value;
}

Decision refuse(int error) {
  return {.error = error};
}

Decision reply_of(std::size_t bytes) {
  return {.reply_bytes = bytes};
}

Decision to_target(ports::IoOp op, std::uint64_t offset, std::uint64_t length) {
  Decision d{.kind = Decision::Kind::target, .op = op, .offset = offset};
  d.length = static_cast<std::uint32_t>(length);
  return d;
}

Decision attributes(const FileFacts& file, std::span<std::byte> reply) {
  fuse_attr_out out{};
  out.attr_valid = attributes_valid_seconds;
  const struct stat& own = file.underlying;
  out.attr.ino = FUSE_ROOT_ID;
  out.attr.mode = S_IFREG | 0600;
  out.attr.nlink = 1;
  out.attr.uid = own.st_uid;
  out.attr.gid = own.st_gid;
  out.attr.size = file.size_bytes;
  out.attr.blksize = page;
  out.attr.blocks = file.size_bytes / 512;
  out.attr.atime = out.attr.mtime = out.attr.ctime = static_cast<std::uint64_t>(own.st_mtim.tv_sec);
  out.attr.atimensec = out.attr.mtimensec = out.attr.ctimensec = static_cast<std::uint32_t>(
      own.st_mtim.tv_nsec);
  return reply_of(put(out, reply));
}

Decision set_attributes(const FileFacts& file, const RequestBody& request, std::span<std::byte> reply) {
  constexpr std::uint32_t harmless = FATTR_ATIME | FATTR_MTIME | FATTR_CTIME | FATTR_ATIME_NOW |
                                     FATTR_MTIME_NOW | FATTR_FH | FATTR_LOCKOWNER | FATTR_KILL_SUIDGID;
  auto in = read_as<fuse_setattr_in>(request.arguments);
  if ((in.valid & ~(harmless | FATTR_SIZE)) != 0) return refuse(EPERM);
  if ((in.valid & FATTR_SIZE) != 0 && in.size != file.size_bytes) return refuse(EPERM);
  return attributes(file, reply);
}

Decision read(const FileFacts& file, const RequestBody& request) {
  auto in = read_as<fuse_read_in>(request.arguments);
  if (in.offset > INT64_MAX || in.size > file.max_bytes) return refuse(EINVAL);
  if (in.offset >= file.size_bytes || in.size == 0) return reply_of(0);
  return to_target(ports::IoOp::read, in.offset,
                   std::min<std::uint64_t>(in.size, file.size_bytes - in.offset));
}

Decision write(const FileFacts& file, const RequestBody& request, std::span<std::byte> reply) {
  auto in = read_as<fuse_write_in>(request.arguments);
  if (in.offset > INT64_MAX || in.size > file.max_bytes || in.size != request.payload_bytes)
    return refuse(EINVAL);
  if (in.offset > file.size_bytes || in.size > file.size_bytes - in.offset) return refuse(ENOSPC);
  if (in.size == 0) return reply_of(encode_written(0, reply));
  Decision d = to_target(ports::IoOp::write, in.offset, in.size);
  // The kernel sends no FSYNC behind a direct write to a file that was opened with O_SYNC or O_DSYNC.
  d.fua = (in.flags & (O_SYNC | O_DSYNC)) != 0;
  return d;
}

Decision allocate(const FileFacts& file, const RequestBody& request) {
  auto in = read_as<fuse_fallocate_in>(request.arguments);
  ports::IoOp op;
  if (in.mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
    op = ports::IoOp::trim;
  else if ((in.mode & ~std::uint32_t{FALLOC_FL_KEEP_SIZE}) == FALLOC_FL_ZERO_RANGE)
    op = ports::IoOp::write_zeroes;
  else
    return refuse(EOPNOTSUPP);
  if (in.offset > INT64_MAX || in.length == 0 || in.length > INT64_MAX) return refuse(EINVAL);
  bool inside = in.offset <= file.size_bytes && in.length <= file.size_bytes - in.offset;
  if (op == ports::IoOp::write_zeroes && !inside) return refuse(ENOSPC);
  if (in.offset >= file.size_bytes) return reply_of(0);  // nothing to punch beyond the end
  std::uint64_t left = std::min<std::uint64_t>(in.length, file.size_bytes - in.offset);
  Decision d = to_target(op, in.offset, std::min<std::uint64_t>(left, range_piece_bytes));
  d.range_left = left - d.length;
  return d;
}

Decision open(std::span<std::byte> reply) {
  fuse_open_out out{};
  out.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  return reply_of(put(out, reply));
}

Decision file_system(const FileFacts& file, std::span<std::byte> reply) {
  fuse_statfs_out out{};
  out.st.bsize = out.st.frsize = page;  // also the loop device's discard granularity
  out.st.blocks = file.size_bytes / page;
  out.st.files = 1;
  out.st.namelen = 255;
  return reply_of(put(out, reply));
}

}  // namespace

Decision decide(const FileFacts& file, const RequestBody& request, std::span<std::byte> reply) {
  switch (request.opcode) {
    case FUSE_GETATTR:
      return attributes(file, reply);
    case FUSE_SETATTR:
      return set_attributes(file, request, reply);
    case FUSE_OPEN:
      return open(reply);
    case FUSE_READ:
      return read(file, request);
    case FUSE_WRITE:
      return write(file, request, reply);
    case FUSE_FSYNC:
      return file.write_lost ? refuse(EIO) : to_target(ports::IoOp::flush, 0, 0);
    case FUSE_FALLOCATE:
      return allocate(file, request);
    case FUSE_STATFS:
      return file_system(file, reply);
    case FUSE_RELEASE:
      return {.released = true};
    case FUSE_FLUSH:  // a close does not make data durable; FSYNC does
    case FUSE_DESTROY:
      return {};
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:  // the request ends in its own time
      return {.kind = Decision::Kind::silence};
    default:
      return refuse(ENOSYS);
  }
}

std::size_t encode_written(std::uint32_t bytes, std::span<std::byte> reply) {
  fuse_write_out out{};
  out.size = bytes;
  return put(out, reply);
}

std::expected<fuse_init_out, int> answer_init(std::span<const std::byte> arguments, const InitWish& wish) {
  if (arguments.size() < sizeof(fuse_init_in)) return std::unexpected(EPROTO);
  auto in = read_as<fuse_init_in>(arguments);
  if (in.major != FUSE_KERNEL_VERSION || in.minor < uapi::minor_with_ring) return std::unexpected(EPROTO);
  std::uint64_t offered = in.flags | std::uint64_t{in.flags2} << 32;
  if ((in.flags & FUSE_INIT_EXT) == 0 || (offered & uapi::over_io_uring) == 0)
    return std::unexpected(EOPNOTSUPP);
  std::uint64_t wanted = (offered & (FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_BIG_WRITES | FUSE_MAX_PAGES)) |
                         FUSE_INIT_EXT | uapi::over_io_uring;
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = uapi::minor_with_ring;
  out.max_readahead = in.max_readahead;
  out.flags = static_cast<std::uint32_t>(wanted);
  out.flags2 = static_cast<std::uint32_t>(wanted >> 32);
  out.max_background = static_cast<std::uint16_t>(wish.max_background);
  out.congestion_threshold = static_cast<std::uint16_t>(wish.max_background * 3 / 4);
  out.max_write = wish.max_bytes;
  out.time_gran = 1;
  out.max_pages = static_cast<std::uint16_t>(wish.max_bytes / page);
  return out;
}

unsigned numbers_in_list(std::string_view list) {
  unsigned count = 0;
  const char* at = list.data();
  const char* end = at + list.size();
  while (at != end && *at != '\n') {
    unsigned first = 0, last = 0;
    auto number = std::from_chars(at, end, first);
    if (number.ec != std::errc()) return 0;
    last = first;
    if (number.ptr != end && *number.ptr == '-') number = std::from_chars(number.ptr + 1, end, last);
    if (number.ec != std::errc() || last < first) return 0;
    count += last - first + 1;
    at = number.ptr;
    if (at != end && *at == ',') ++at;
  }
  return count;
}

}  // namespace twinloft::repl::fuse
