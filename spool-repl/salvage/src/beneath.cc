#include "beneath.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace twinloft::repl::salvage {

Result<Fd> open_beneath(int dir, const std::string& path, int flags, mode_t mode) {
  struct open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  for (;;) {
    Fd fd(static_cast<int>(::syscall(SYS_openat2, dir, path.c_str(), &how, sizeof how)));
    if (fd) return fd;
    // EAGAIN: a name was changed while the path was resolved.
    if (errno != EINTR && errno != EAGAIN) return fail_errno(errno, "{}", printable(path));
  }
}

Result<Fd> open_directory(int dir, const std::string& path) {
  return open_beneath(dir, path, O_RDONLY | O_DIRECTORY);
}

Result<struct stat> stat_of(int fd) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return fail_errno(errno, "fstat");
  return about;
}

Result<PlainFile> open_plain_file(int dir, const std::string& name) {
  PlainFile out;
  // The type is checked before the file is opened for reading, since opening a device may have an effect.
  TL_TRY_ASSIGN(Fd path, open_beneath(dir, name, O_PATH | O_NOFOLLOW));
  TL_TRY_ASSIGN(out.about, stat_of(path.get()));
  if (S_ISREG(out.about.st_mode)) {
    TL_TRY_ASSIGN(out.fd, open_beneath(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    TL_TRY_ASSIGN(out.about, stat_of(out.fd.get()));
  }
  if (S_ISLNK(out.about.st_mode))
    return fail(Errc::invalid, "{}: a symbolic link, not followed", printable(name));
  if (!S_ISREG(out.about.st_mode)) return fail(Errc::invalid, "{}: not a plain file", printable(name));
  return out;
}

namespace {

unsigned char type_of(int dir, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type;
  struct stat about{};
  if (::fstatat(dir, entry.d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) return DT_UNKNOWN;
  return static_cast<unsigned char>(IFTODT(about.st_mode));
}

}  // namespace

Result<std::vector<Entry>> list_directory(int dir) {
  // A separate descriptor, since the position in the directory belongs to the open file.
  TL_TRY_ASSIGN(Fd own, open_beneath(dir, ".", O_RDONLY | O_DIRECTORY));
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own.get()), ::closedir);
  if (!stream) return fail_errno(errno, "fdopendir");
  (void)own.release();
  std::vector<Entry> out;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (!entry && errno != 0) return fail_errno(errno, "the directory cannot be read");
    if (!entry) break;
    if (std::string_view name = entry->d_name; name != "." && name != "..")
      out.push_back({std::string(name), type_of(dir, *entry)});
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return out;
}

}  // namespace twinloft::repl::salvage
