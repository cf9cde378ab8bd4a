#include "twinloft/spool-repl/salvage/file_ops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "beneath.h"
#include "twinloft/base/durable.h"

namespace twinloft::repl::salvage {

namespace {

template <class... Args>
Status done(int rc, fmt::format_string<Args...> what, Args&&... args) {
  if (rc == 0) return {};
  return fail_errno(errno, what, std::forward<Args>(args)...);
}

}  // namespace

Result<Fd> OsFileOps::create(int dir, const std::string& name) {
  return open_beneath(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
}

Status OsFileOps::write(int fd, ByteSpan data) {
  return write_all(fd, data);
}

Status OsFileOps::truncate(int fd, std::uint64_t bytes) {
  return done(::ftruncate(fd, static_cast<off_t>(bytes)), "truncation to {} bytes", bytes);
}

Status OsFileOps::set_owner(int fd, const Ownership& owner) {
  TL_TRY_ASSIGN(struct stat about, stat_of(fd));
  if (about.st_uid != owner.uid || about.st_gid != owner.gid)
    TL_TRY(done(::fchown(fd, owner.uid, owner.gid), "chown to {}:{}", owner.uid, owner.gid));
  return done(::fchmod(fd, owner.mode), "chmod to {:o}", owner.mode);
}

Status OsFileOps::set_modified(int fd, FileTime time) {
  timespec times[2] = {{0, UTIME_OMIT}, {static_cast<time_t>(time.seconds), static_cast<long>(time.ns)}};
  return done(::futimens(fd, times), "setting the time of the last change");
}

Status OsFileOps::sync(int fd) {
  return sync_durably(fd);
}

Status OsFileOps::sync_file_system(int fd) {
  return sync_file_system_durably(fd);
}

Status OsFileOps::make_directory(int dir, const std::string& name) {
  return done(::mkdirat(dir, name.c_str(), 0700), "making the directory {}", printable(name));
}

Status OsFileOps::rename(int from_dir, const std::string& from, int to_dir, const std::string& to) {
  return done(::renameat2(from_dir, from.c_str(), to_dir, to.c_str(), RENAME_NOREPLACE), "renaming {} to {}",
              printable(from), printable(to));
}

Status OsFileOps::replace(int dir, const std::string& from, const std::string& to) {
  return done(::renameat(dir, from.c_str(), dir, to.c_str()), "renaming {} to {}", printable(from),
              printable(to));
}

Status OsFileOps::remove(int dir, const std::string& name) {
  return done(::unlinkat(dir, name.c_str(), 0), "removing {}", printable(name));
}

}  // namespace twinloft::repl::salvage
