#include "twinloft/lmtpd/intake/log_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "open_without_links.h"
#include "twinloft/base/check.h"
#include "twinloft/base/durable.h"
#include "twinloft/intake_log/mark.h"

namespace twinloft::lmtpd {

using intake_log::mark_attribute;
using intake_log::segments_max;

namespace {

constexpr const char* failure_attribute = "user.twinloft.intake.failed";
constexpr std::uint32_t segments_usual = 8;
constexpr std::size_t attribute_bytes_max = 4096;  // a larger one does not fit into one block of ext4
constexpr std::size_t failure_bytes_max = 128;     // beside the mark in the same block
constexpr std::size_t identity_bytes_max = 8192;
constexpr std::size_t chunk_bytes = 1u << 20;

std::string shown(std::string_view name) {
  return fmt::format("{}/{}", log_directory_name, name);
}

Result<struct statx> about(int fd, std::string_view name) {
  struct statx out{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &out) != 0)
    return fail_errno(errno, "{}", shown(name));
  return out;
}

Fd open_in(int dir, const std::string& name, std::uint64_t flags, std::uint64_t mode = 0) {
  return open_without_links(dir, name, flags | O_NOFOLLOW, mode);
}

// Nobody else may read mail in the log, or change it.
Status check_owned(const struct statx& file, std::string_view name, unsigned type) {
  if ((file.stx_mode & S_IFMT) != type)
    return fail(Errc::corrupt, "{}: not a {}", shown(name), type == S_IFDIR ? "directory" : "regular file");
  if (file.stx_uid != ::geteuid())
    return fail(Errc::denied, "{} has uid {}: it must be owned by lmtpd's user, {}", shown(name),
                file.stx_uid, ::geteuid());
  if ((file.stx_mode & 077) != 0)
    return fail(Errc::denied, "{} has mode {:04o}: it must not be open to others; use chmod go=", shown(name),
                file.stx_mode & 07777);
  return {};
}

Result<Fd> open_directory(int root) {
  Fd out = open_in(root, log_directory_name, O_RDONLY | O_DIRECTORY);
  if (!out && errno == ENOENT) return fail(Errc::not_found, "there is no {}", log_directory_name);
  if (!out) return fail_errno(errno, "open {}", log_directory_name);
  TL_TRY_ASSIGN(struct statx found, about(out.get(), ""));
  TL_TRY(check_owned(found, "", S_IFDIR));
  return out;
}

std::string identity_line(std::string_view name, const struct statx& file) {
  return fmt::format("{} {} {}.{:09}\n", name, file.stx_ino, file.stx_btime.tv_sec, file.stx_btime.tv_nsec);
}

// The content of `lock`.
Result<std::string> describe(const Uuid& incarnation, int directory, const LogShape& shape,
                             const std::vector<Fd>& segments) {
  std::string out = fmt::format("twinloft intake log 1\nincarnation {}\nsegments {} of {}\n",
                                incarnation.text(), shape.segments, shape.segment_bytes);
  TL_TRY_ASSIGN(struct statx found, about(directory, ""));
  out += identity_line("directory", found);
  for (std::uint32_t i = 0; i < segments.size(); ++i) {
    TL_TRY_ASSIGN(found, about(segments[i].get(), log_segment_name(i)));
    out += identity_line(log_segment_name(i), found);
  }
  return out;
}

Status set_attribute(int fd, const char* name, ByteSpan value) {
  int result;
  do {
    result = ::fsetxattr(fd, name, value.data(), value.size(), 0);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return fail_errno(errno, "set {} of {}", name, log_directory_name);
  return {};
}

// nullopt: no such attribute.
Result<std::optional<std::vector<std::byte>>> get_attribute(int fd, const char* name, std::size_t most) {
  std::vector<std::byte> out(most);
  ssize_t n = ::fgetxattr(fd, name, out.data(), out.size());
  if (n < 0 && errno == ENODATA) return std::nullopt;
  if (n < 0) return fail_errno(errno, "read {} of {}", name, log_directory_name);
  out.resize(static_cast<std::size_t>(n));
  return out;
}

Result<std::string> read_lock_file(int fd) {
  std::string out(identity_bytes_max, '\0');
  ssize_t n = ::pread(fd, out.data(), out.size(), 0);
  if (n < 0) return fail_errno(errno, "read {}", shown(log_lock_name));
  out.resize(static_cast<std::size_t>(n));
  return out;
}

Result<bool> take_lock(int fd) {
  int result;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return fail_errno(errno, "lock {}", shown(log_lock_name));
}

// ---- create

// Fully written: a write into unwritten extents would need a commit of the file system each time.
Result<Fd> make_segment(int directory, std::uint32_t number, std::uint64_t bytes) {
  const std::string name = log_segment_name(number);
  Fd out = open_in(directory, name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!out) return fail_errno(errno, "create {}", shown(name));
  if (int error = ::posix_fallocate(out.get(), 0, static_cast<off_t>(bytes)); error != 0)
    return fail_errno(error, "allocate {} bytes for {}", bytes, shown(name));
  const std::vector<std::byte> zeros(chunk_bytes);
  for (std::uint64_t at = 0; at < bytes; at += zeros.size())
    TL_TRY(write_all(out.get(), ByteSpan(zeros).first(std::min<std::uint64_t>(zeros.size(), bytes - at))));
  TL_TRY(sync_durably(out.get()));
  return out;
}

Result<Fd> make_directory(int root) {
  if (::mkdirat(root, log_directory_name, 0700) != 0 && errno != EEXIST)
    return fail_errno(errno, "create {} (or create it as root: install -d -o USER -m 0700)",
                      log_directory_name);
  return open_directory(root);
}

bool has_segment(int directory) {
  for (std::uint32_t i = 0; i < segments_max; ++i)
    if (::faccessat(directory, log_segment_name(i).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return true;
  return false;
}

// A create() makes `lock` first, and a removal ends with it. So mail may be in these segments, and an empty
// `lock` beside them would let the next create() remove them.
Status check_no_orphans(int directory) {
  const bool has_lock = ::faccessat(directory, log_lock_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  if (has_lock || !has_segment(directory)) return {};
  return fail(Errc::corrupt,
              "{} has segments, but no file \"{}\": keep the directory as it is, and set it aside",
              log_directory_name, log_lock_name);
}

// An empty `lock` is what a create() leaves that was interrupted. No program has used its segments.
Result<Fd> begin_create(int directory) {
  TL_TRY(check_no_orphans(directory));
  Fd lock = open_in(directory, log_lock_name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!lock && errno == EEXIST) lock = open_in(directory, log_lock_name, O_RDWR);
  if (!lock) return fail_errno(errno, "open {}", shown(log_lock_name));
  TL_TRY_ASSIGN(bool mine, take_lock(lock.get()));
  if (!mine) return fail(Errc::conflict, "{} is in use by another process", log_directory_name);
  TL_TRY_ASSIGN(std::string identity, read_lock_file(lock.get()));
  if (!identity.empty()) return fail(Errc::conflict, "{} has a log already", log_directory_name);
  TL_TRY(sync_durably(directory));
  for (std::uint32_t i = 0; i < segments_max; ++i) {
    const std::string name = log_segment_name(i);
    if (::unlinkat(directory, name.c_str(), 0) != 0 && errno != ENOENT)
      return fail_errno(errno, "remove {}", shown(name));
  }
  return lock;
}

Status write_identity(int lock, const std::string& identity) {
  TL_TRY(write_all(lock, as_bytes(identity)));
  return sync_durably(lock);
}

}  // namespace

std::string log_segment_name(std::uint32_t number) {
  return fmt::format("segment-{:02}", number);
}

LogShape log_shape_of(std::uint64_t bytes) {
  const std::uint64_t each = (bytes + segments_usual - 1) / segments_usual;
  const std::uint64_t blocks = std::max<std::uint64_t>(1, (each + log_block_bytes - 1) / log_block_bytes);
  return {blocks * log_block_bytes, segments_usual};
}

LogBuffer::LogBuffer(std::size_t bytes)
    : memory_(static_cast<std::byte*>(std::aligned_alloc(log_block_bytes, bytes))), bytes_(bytes) {
  TL_CHECK(memory_ && bytes % log_block_bytes == 0);
  std::memset(memory_.get(), 0, bytes);
}
void LogBuffer::Free::operator()(std::byte* at) const {
  std::free(at);
}

Result<std::optional<LogPlace>> find_log(int root) {
  struct stat found{};
  if (::fstatat(root, log_directory_name, &found, AT_SYMLINK_NOFOLLOW) == 0)
    return LogPlace{found.st_dev, found.st_ino};
  if (errno == ENOENT) return std::nullopt;
  return fail_errno(errno, "{}", log_directory_name);
}

Status LogDirectory::create(int root, const LogShape& shape, const Uuid& incarnation, ByteSpan mark) {
  TL_TRY(intake_log::check_shape(shape));
  TL_TRY_ASSIGN(Fd directory, make_directory(root));
  TL_TRY_ASSIGN(Fd lock, begin_create(directory.get()));
  std::vector<Fd> segments;
  for (std::uint32_t i = 0; i < shape.segments; ++i) {
    TL_TRY_ASSIGN(Fd segment, make_segment(directory.get(), i, shape.segment_bytes));
    segments.push_back(std::move(segment));
  }
  TL_TRY(set_attribute(directory.get(), mark_attribute, mark));
  TL_TRY(sync_durably(directory.get()));
  TL_TRY_ASSIGN(std::string identity, describe(incarnation, directory.get(), shape, segments));
  TL_TRY(write_identity(lock.get(), identity));
  return sync_durably(root);
}

namespace {

// The second line of the identity.
Result<Uuid> incarnation_in(std::string_view identity) {
  constexpr std::string_view word = "\nincarnation ";
  std::size_t at = identity.find(word);
  if (at == identity.npos) return fail(Errc::corrupt, "{} names no incarnation", shown(log_lock_name));
  identity.remove_prefix(at + word.size());
  return Uuid::parse(identity.substr(0, identity.find('\n')));
}

Result<Fd> open_segment(int directory, std::uint32_t number, std::uint64_t& bytes) {
  const std::string name = log_segment_name(number);
  Fd out = open_in(directory, name, O_RDWR | O_DIRECT | O_DSYNC | O_NONBLOCK);
  if (!out && errno == ENOENT) return out;
  if (!out && errno == EINVAL)
    return fail(Errc::unavailable, "{}: the file system has no O_DIRECT", shown(name));
  if (!out) return fail_errno(errno, "open {}", shown(name));
  TL_TRY_ASSIGN(struct statx found, about(out.get(), name));
  TL_TRY(check_owned(found, name, S_IFREG));
  if (number == 0) bytes = found.stx_size;
  if (found.stx_size != bytes || bytes == 0 || bytes % log_block_bytes != 0)
    return fail(Errc::corrupt, "{} has {} bytes, which is not the size of the log's segments", shown(name),
                found.stx_size);
  return out;
}

}  // namespace

Result<LogDirectory> LogDirectory::open(int root) {
  LogDirectory out;
  TL_TRY_ASSIGN(out.directory_, open_directory(root));
  TL_TRY(check_no_orphans(out.directory_.get()));
  out.lock_ = open_in(out.directory_.get(), log_lock_name, O_RDWR | O_NONBLOCK);
  if (!out.lock_ && errno == ENOENT) return fail(Errc::not_found, "{} has no log", log_directory_name);
  if (!out.lock_) return fail_errno(errno, "open {}", shown(log_lock_name));
  TL_TRY_ASSIGN(std::string identity, read_lock_file(out.lock_.get()));
  if (identity.empty())
    return fail(Errc::not_found, "{} is not finished: its creation was interrupted", log_directory_name);
  TL_TRY_ASSIGN(out.incarnation_, incarnation_in(identity));
  for (std::uint32_t i = 0; i < segments_max; ++i) {
    TL_TRY_ASSIGN(Fd segment, open_segment(out.directory_.get(), i, out.shape_.segment_bytes));
    if (!segment) break;
    out.segments_.push_back(std::move(segment));
  }
  out.shape_.segments = static_cast<std::uint32_t>(out.segments_.size());
  TL_TRY_ASSIGN(std::string observed,
                describe(out.incarnation_, out.directory_.get(), out.shape_, out.segments_));
  if (observed != identity)
    return fail(Errc::corrupt,
                "{} is a copy, or parts of it were replaced: {} describes other files than those beside it",
                log_directory_name, shown(log_lock_name));
  TL_TRY_ASSIGN(struct statx found, about(out.directory_.get(), ""));
  TL_TRY_ASSIGN(std::optional<LogPlace> place, find_log(root));
  if (!place || place->inode != found.stx_ino)
    return fail(Errc::unavailable, "{} was replaced just now", log_directory_name);
  out.place_ = *place;
  return out;
}

Result<bool> LogDirectory::lock() {
  return take_lock(lock_.get());
}

Status LogDirectory::read(std::uint32_t segment, std::uint64_t offset, MutableByteSpan out) const {
  TL_CHECK(segment < segments_.size());
  for (std::size_t done = 0; done < out.size();) {
    ssize_t n = ::pread(segments_[segment].get(), out.data() + done, out.size() - done,
                        static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return fail_errno(errno, "read {} at byte {}", shown(log_segment_name(segment)), offset + done);
    if (n == 0)
      return fail(Errc::corrupt, "{} ends at byte {}", shown(log_segment_name(segment)), offset + done);
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::vector<LogBuffer>> LogDirectory::read_segments() const {
  std::vector<LogBuffer> out;
  for (std::uint32_t i = 0; i < shape_.segments; ++i) {
    out.emplace_back(shape_.segment_bytes);
    TL_TRY(read(i, 0, out.back().bytes()));
  }
  return out;
}

Result<std::vector<std::byte>> LogDirectory::read_mark() const {
  TL_TRY_ASSIGN(auto mark, get_attribute(directory_.get(), mark_attribute, attribute_bytes_max));
  if (!mark)
    return fail(Errc::not_found, "{} has no attribute {}: it was restored or copied without attributes",
                log_directory_name, mark_attribute);
  return *std::move(mark);
}

Result<std::optional<std::string>> LogDirectory::failure() const {
  TL_TRY_ASSIGN(auto why, get_attribute(directory_.get(), failure_attribute, attribute_bytes_max));
  if (!why) return std::nullopt;
  return std::string(as_text(*why));
}

Status LogDirectory::clear_failure() {
  if (::fremovexattr(directory_.get(), failure_attribute) == 0 || errno == ENODATA) return {};
  return fail_errno(errno, "remove {} of {}", failure_attribute, log_directory_name);
}

Status LogDirectory::append(std::uint32_t segment, std::uint64_t offset, ByteSpan group) {
  TL_CHECK(segment < segments_.size() && offset % log_block_bytes == 0 &&
           group.size() % log_block_bytes == 0 && offset + group.size() <= shape_.segment_bytes);
  ssize_t n;
  do {
    n = ::pwrite(segments_[segment].get(), group.data(), group.size(), static_cast<off_t>(offset));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno(errno, "write to {}", shown(log_segment_name(segment)));
  if (static_cast<std::size_t>(n) != group.size())
    return fail_errno(EIO, "write of {} bytes to {}: only {} were written", group.size(),
                      shown(log_segment_name(segment)), n);
  return {};
}

Status LogDirectory::set_mark(ByteSpan mark) {
  return set_attribute(directory_.get(), mark_attribute, mark);
}

Status LogDirectory::sync() {
  return sync_durably(directory_.get());
}

Status LogDirectory::set_failure(std::string_view why) {
  return set_attribute(directory_.get(), failure_attribute, as_bytes(why.substr(0, failure_bytes_max)));
}

}  // namespace twinloft::lmtpd
