#include "mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/fuse_export.h"

namespace twinloft::repl::fuse {

namespace {

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    auto end = line.find(' ');
    words.push_back(line.substr(0, end));
    line = end == std::string_view::npos ? std::string_view{} : line.substr(end + 1);
  }
  return words;
}

// mountinfo writes blank, tab, newline and backslash as three octal digits.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8).ptr == text.data() + i + 4) {
      out += static_cast<char>(value);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<dev_t> device_in(std::string_view text) {
  unsigned major = 0, minor = 0;
  auto colon = std::from_chars(text.data(), text.data() + text.size(), major).ptr;
  if (colon == text.data() + text.size() || *colon != ':') return std::nullopt;
  auto end = std::from_chars(colon + 1, text.data() + text.size(), minor).ptr;
  return end == text.data() + text.size() ? std::optional(makedev(major, minor)) : std::nullopt;
}

Result<std::vector<MountEntry>> current_mounts_at(const std::string& path) {
  TL_TRY_ASSIGN(auto mountinfo, read_file("/proc/self/mountinfo", 64u << 20));
  return mounts_at(mountinfo, path);
}

constexpr std::string_view own_type = "fuse.twinloft";

}  // namespace

std::vector<MountEntry> mounts_at(std::string_view mountinfo, std::string_view path) {
  std::vector<MountEntry> found;
  while (!mountinfo.empty()) {
    auto end = mountinfo.find('\n');
    auto words = split(mountinfo.substr(0, end));
    mountinfo = end == std::string_view::npos ? std::string_view{} : mountinfo.substr(end + 1);
    // id parent major:minor root mount-point options [optional fields] - type source super-options
    if (words.size() < 5 || unescape(words[4]) != path) continue;
    auto device = device_in(words[2]);
    for (std::size_t i = 5; device && i + 1 < words.size(); ++i) {
      if (words[i] != "-") continue;
      found.push_back({*device, std::string(words[i + 1])});
      break;
    }
  }
  return found;
}

std::optional<std::string> mounted_type(std::string_view mountinfo, std::string_view path) {
  auto all = mounts_at(mountinfo, path);
  return all.empty() ? std::nullopt : std::optional(all.back().type);
}

Result<std::optional<MountEntry>> topmost_mount(const std::string& path) {
  TL_TRY_ASSIGN(auto all, current_mounts_at(path));
  return all.empty() ? std::nullopt : std::optional(all.back());
}

bool is_dead_mount(const std::string& path) {
  // The kernel may have cached the attributes: make it ask the server.
  struct statx st{};
  return ::statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, STATX_SIZE, &st) != 0 &&
         (errno == ENOTCONN || errno == ECONNABORTED);
}

namespace {
bool is_left_over(const std::optional<MountEntry>& top, const std::string& path) {
  return top && top->type == own_type && is_dead_mount(path);
}
}  // namespace

Status check_mount_point(const std::string& path) {
  if (!path.starts_with('/'))
    return fail(Errc::invalid, "fuse: mount point \"{}\" must be an absolute path", path);
  TL_TRY_ASSIGN(auto top, topmost_mount(path));
  if (is_left_over(top, path)) return {};
  if (top)
    return fail(Errc::unavailable,
                "fuse: {}: a file system of type {} is mounted there already; unmount it, or stop the "
                "process that serves it",
                path, top->type);
  struct stat st{};
  int rc = ::stat(path.c_str(), &st);
  if (rc != 0 && errno == ENOENT) return {};
  if (rc != 0) return fail_errno(errno, "fuse: mount point {}", path);
  if (!S_ISREG(st.st_mode))
    return fail(Errc::invalid, "fuse: mount point {} must be a regular file (or not exist yet)", path);
  return {};
}

Status prepare_mount_point(const std::string& path) {
  TL_TRY(check_mount_point(path));
  TL_TRY_ASSIGN(auto top, topmost_mount(path));
  if (is_left_over(top, path)) {
    log_warning("fuse: {}: removing the mount that an earlier process left behind", path);
    if (::umount2(path.c_str(), MNT_DETACH) != 0)
      return fail_errno(errno, "fuse: {}: unmounting the mount of an earlier process", path);
    TL_TRY(check_mount_point(path));
  }
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0 && errno == ENOENT) {
    Fd created(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!created) return fail_errno(errno, "fuse: {}: the mount point cannot be created", path);
  }
  return {};
}

Status unmount_own(const std::string& path, dev_t own) {
  TL_TRY_ASSIGN(auto all, current_mounts_at(path));
  if (std::none_of(all.begin(), all.end(), [&](const MountEntry& m) { return m.device == own; })) return {};
  if (all.back().device != own)
    return fail(Errc::unavailable, "fuse: {}: covered by another mount of type {}: unmount that mount first",
                path, all.back().type);
  if (::umount2(path.c_str(), UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT)
    return {};  // EINVAL: gone meanwhile
  auto error = fail_errno(
      errno,
      "fuse: {}: cannot be unmounted (a loop device or a program still holds it; `losetup -j` and "
      "`fuser -m` name them)",
      path);
  if (error.error().sys == EBUSY) error.error().code = Errc::unavailable;
  return error;
}

void abort_mount(const std::string& path, dev_t own, bool connected) {
  auto top = topmost_mount(path);
  // For FUSE, MNT_FORCE ends the connection first of all. Unlike /sys/fs/fuse/connections, it needs no
  // mounted fusectl.
  if (top && *top && (*top)->device == own) {
    ::umount2(path.c_str(), MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW);
    return;
  }
  // Covered by another mount, or unmounted lazily while a program uses it.
  if (!connected) return;
  Fd abort(
      ::open(fmt::format("/sys/fs/fuse/connections/{}/abort", minor(own)).c_str(), O_WRONLY | O_CLOEXEC));
  if (abort) (void)!::write(abort.get(), "1", 1);
}

}  // namespace twinloft::repl::fuse
