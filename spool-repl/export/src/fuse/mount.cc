#include "mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/log.h"

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

}  // namespace

std::optional<MountEntry> find_mount(std::string_view mountinfo, std::string_view path) {
  std::optional<MountEntry> found;
  while (!mountinfo.empty()) {
    auto end = mountinfo.find('\n');
    auto words = split(mountinfo.substr(0, end));
    mountinfo = end == std::string_view::npos ? std::string_view{} : mountinfo.substr(end + 1);
    // id parent major:minor root mount-point options [optional fields] - type source super-options
    if (words.size() < 7 || unescape(words[4]) != path) continue;
    MountEntry entry;
    auto colon = words[2].find(':');
    if (colon == std::string_view::npos) continue;
    std::string_view minor_text = words[2].substr(colon + 1);
    std::from_chars(minor_text.data(), minor_text.data() + minor_text.size(), entry.device_minor);
    for (std::size_t i = 6; i + 1 < words.size(); ++i)
      if (words[i] == "-") entry.type = words[i + 1];
    found = entry;  // later lines lie on top of earlier ones
  }
  return found;
}

Result<std::optional<MountEntry>> find_mount_now(const std::string& path) {
  TL_TRY_ASSIGN(auto text, read_file("/proc/self/mountinfo", 64u << 20));
  return find_mount(text, path);
}

bool is_dead_mount(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

Status prepare_mount_point(const std::string& path) {
  if (!path.starts_with('/')) return fail(Errc::invalid, "fuse: mount point \"{}\" must be an absolute path", path);
  if (is_dead_mount(path)) {
    log_warning("fuse: {}: removing the mount that an earlier process left behind", path);
    if (::umount2(path.c_str(), MNT_DETACH) != 0) return fail_errno(errno, "fuse: {}: unmounting what was left", path);
  }
  TL_TRY_ASSIGN(auto mounted, find_mount_now(path));
  if (mounted)
    return fail(Errc::unavailable, "fuse: {}: something of type {} is mounted there already; unmount it, or stop the "
                "process that serves it", path, mounted->type);
  struct stat st {};
  int rc = ::stat(path.c_str(), &st);
  if (rc != 0 && errno == ENOENT) {
    Fd created(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!created) return fail_errno(errno, "fuse: {}: the mount point cannot be created", path);
    return {};
  }
  if (rc != 0) return fail_errno(errno, "fuse: mount point {}", path);
  if (!S_ISREG(st.st_mode))
    return fail(Errc::invalid, "fuse: mount point {} must be a regular file (or not exist yet)", path);
  return {};
}

void abort_connection(unsigned number) {
  Fd fd(::open(fmt::format("/sys/fs/fuse/connections/{}/abort", number).c_str(), O_WRONLY | O_CLOEXEC));
  if (fd) (void)write_all(fd.get(), as_bytes("1"));
}

}  // namespace twinloft::repl::fuse
