#include "twinloft/lmtpd/spool/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <span>

#include "twinloft/base/durable.h"

namespace twinloft::lmtpd {

namespace {
int open_beneath(int dir, const char* path, std::uint64_t flags, std::uint64_t mode) {
  struct open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: the path was renamed during its resolution. Another attempt is due (openat2(2)).
  long fd;
  do {
    fd = ::syscall(SYS_openat2, dir, path, &how, sizeof how);
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  return static_cast<int>(fd);
}
// The kernel's text for EXDEV speaks of devices.
std::unexpected<Error> fail_open(int sys, std::string_view what, const std::string& path) {
  if (sys == EXDEV)
    return std::unexpected(Error{
        Errc::denied,
        fmt::format("{} {}: a symbolic link in the path is absolute or leads out, or another file system "
                    "is mounted there; use a relative link to a place inside",
                    what, path),
        sys});
  if (sys == ELOOP)
    return std::unexpected(Error{
        Errc::denied, fmt::format("{} {}: it is a symbolic link, or links form a loop", what, path), sys});
  return fail_errno(sys, "{} {}", what, path);
}
}  // namespace

Result<Fd> OsFileOps::open_root(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open {}", path);
  return fd;
}

Result<Fd> OsFileOps::open_directory(int dir, const std::string& path) {
  Fd fd(open_beneath(dir, path.c_str(), O_RDONLY | O_DIRECTORY, 0));
  if (!fd) return fail_open(errno, "open directory", path);
  return fd;
}

Result<Fd> OsFileOps::create_file(int dir, const std::string& path) {
  Fd fd(open_beneath(dir, path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (!fd) return fail_open(errno, "create", path);
  return fd;
}

Result<Fd> OsFileOps::create_unnamed(int dir) {
  Fd fd(open_beneath(dir, ".", O_TMPFILE | O_WRONLY, 0600));
  if (!fd) return fail_errno(errno, "create a file without a name");
  return fd;
}

Status OsFileOps::write(int fd, ByteSpan data) {
  return write_all(fd, data);
}

Status OsFileOps::make_directory(int dir, const std::string& path) {
  if (::mkdirat(dir, path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return fail_errno(errno, "create directory {}", path);
}

Status OsFileOps::rename(int from_dir, const std::string& from, int to_dir, const std::string& to) {
  if (::renameat2(from_dir, from.c_str(), to_dir, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  // EINVAL: a file system without RENAME_NOREPLACE. The names are unique also without it.
  if (errno == EINVAL && ::renameat(from_dir, from.c_str(), to_dir, to.c_str()) == 0) return {};
  return fail_errno(errno, "rename {} to {}", from, to);
}

Status OsFileOps::link(int from_dir, const std::string& from, int to_dir, const std::string& to) {
  if (::linkat(from_dir, from.c_str(), to_dir, to.c_str(), 0) == 0) return {};
  return fail_errno(errno, "link {} to {}", from, to);
}

// open(2), O_TMPFILE. AT_EMPTY_PATH without a path in /proc needs CAP_DAC_READ_SEARCH, or Linux 6.10. Other
// kernels answer ENOENT.
Status OsFileOps::link_unnamed(int file, int to_dir, const std::string& to) {
  static std::atomic<bool> needs_proc{false};
  if (!needs_proc) {
    if (::linkat(file, "", to_dir, to.c_str(), AT_EMPTY_PATH) == 0) return {};
    if (errno != ENOENT) return fail_errno(errno, "link to {}", to);
  }
  const std::string from = fmt::format("/proc/self/fd/{}", file);
  if (::linkat(AT_FDCWD, from.c_str(), to_dir, to.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    needs_proc = true;
    return {};
  }
  const int sys = errno;
  if (sys == ENOENT && ::access("/proc/self/fd", F_OK) != 0)
    return fail_errno(EOPNOTSUPP, "/proc/self/fd does not exist: link to {}", to);
  return fail_errno(sys, "link to {}", to);
}

Status OsFileOps::replace(int dir, const std::string& from, const std::string& to) {
  if (::renameat(dir, from.c_str(), dir, to.c_str()) == 0) return {};
  return fail_errno(errno, "rename {} to {}", from, to);
}

Status OsFileOps::unlink(int dir, const std::string& path) {
  if (::unlinkat(dir, path.c_str(), 0) == 0) return {};
  return fail_errno(errno, "remove {}", path);
}

Result<bool> OsFileOps::append(int dir, const std::string& path, ByteSpan data) {
  Fd fd(open_beneath(dir, path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0));
  if (!fd) return fail_open(errno, "open", path);
  struct stat about{};
  if (::fstat(fd.get(), &about) != 0) return fail_errno(errno, "{}", path);
  if (!S_ISREG(about.st_mode)) return fail(Errc::invalid, "{}: not a regular file", path);
  ssize_t written = ::write(fd.get(), data.data(), data.size());
  if (written < 0) return fail_errno(errno, "append to {}", path);
  if (static_cast<std::size_t>(written) != data.size()) return fail_errno(ENOSPC, "append to {}", path);
  if (::fstat(fd.get(), &about) != 0) return fail_errno(errno, "{}", path);
  return about.st_nlink > 0;
}

Result<FileAbout> OsFileOps::about(int dir, const std::string& name) {
  struct stat about{};
  if (::fstatat(dir, name.c_str(), &about, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
    return fail_errno(errno, "{}", name);
  return FileAbout{static_cast<std::uint64_t>(about.st_size),
                   about.st_mtim.tv_sec,
                   about.st_mtim.tv_nsec,
                   S_ISLNK(about.st_mode),
                   S_ISDIR(about.st_mode),
                   about.st_ino};
}

Result<std::string> OsFileOps::read_file(int dir, const std::string& path, std::size_t limit) {
  Fd fd(open_beneath(dir, path.c_str(), O_RDONLY | O_NONBLOCK, 0));
  if (!fd) return fail_open(errno, "open", path);
  struct stat about{};
  if (::fstat(fd.get(), &about) != 0) return fail_errno(errno, "{}", path);
  if (!S_ISREG(about.st_mode)) return fail(Errc::invalid, "{}: not a regular file", path);
  if (static_cast<std::uint64_t>(about.st_size) > limit)
    return fail(Errc::exhausted, "{}: larger than the limit of {} bytes", path, limit);
  std::string out(static_cast<std::size_t>(about.st_size), '\0');
  TL_TRY(read_exact(fd.get(), std::as_writable_bytes(std::span(out))));
  return out;
}

Result<std::vector<std::string>> FileOps::entries(int dir) {
  std::vector<std::string> out;
  TL_TRY(each_entry(dir, [&](const std::string& name) -> Status {
    out.push_back(name);
    return {};
  }));
  return out;
}

Status OsFileOps::each_entry(int dir, const std::function<Status(const std::string&)>& see) {
  Fd fd(open_beneath(dir, ".", O_RDONLY | O_DIRECTORY, 0));  // with a separate position
  if (!fd) return fail_errno(errno, "open a directory to list it");
  std::unique_ptr<DIR, int (*)(DIR*)> open(::fdopendir(fd.get()), ::closedir);
  if (!open) return fail_errno(errno, "fdopendir");
  (void)fd.release();
  std::string name;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (!entry) return errno == 0 ? Status{} : fail_errno(errno, "readdir");
    name = entry->d_name;
    if (name != "." && name != "..") TL_TRY(see(name));
  }
}

Status OsFileOps::sync_file(int fd) {
  return sync_durably(fd);
}
Status OsFileOps::write_back(int fd) {
  return twinloft::write_back(fd);
}
Status OsFileOps::start_write_back(int fd) {
  return twinloft::start_write_back(fd);
}
Status OsFileOps::sync_file_system(int fd) {
  return sync_file_system_durably(fd);
}
Status OsFileOps::check_not_failed(int fd) {
  return twinloft::check_not_failed(fd);
}

}  // namespace twinloft::lmtpd
