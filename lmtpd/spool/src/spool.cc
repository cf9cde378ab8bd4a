#include "twinloft/lmtpd/spool/spool.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "twinloft/base/durable.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view reserved_prefix = ".twinloft-";  // the marker, and the files of salvage

// Splits off the first part of a path without leading slash.
std::string_view take_part(std::string_view& rest) {
  std::size_t slash = rest.find('/');
  std::string_view part = rest.substr(0, slash);
  rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
  return part;
}

bool is_plain_absolute(std::string_view path) {
  if (path.empty() || path[0] != '/') return false;
  if (path.find('\0') != std::string_view::npos) return false;
  std::string_view rest = path.substr(1);
  while (!rest.empty()) {
    std::string_view part = take_part(rest);
    if (part == "." || part == "..") return false;
  }
  return true;
}

// "/a//b/" -> "/a/b"; "/" -> "".
std::string without_extra_slashes(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    std::string_view part = take_part(path);
    if (part.empty()) continue;
    out += '/';
    out += part;
  }
  return out;
}

std::unexpected<Error> fail_at(const std::string& where, Error error) {
  error.message = where + ": " + error.message;
  return std::unexpected(std::move(error));
}

// The marker must be on the root's file system, and no link to another file system.
Fd open_marker(int root) {
  struct open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
  return Fd(static_cast<int>(::syscall(SYS_openat2, root, spool_marker_name, &how, sizeof how)));
}

Result<Uuid> read_marker(int root, const std::string& root_path) {
  Fd fd = open_marker(root);
  if (!fd && errno == ENOENT)
    return fail(Errc::not_found, "{}/{} does not exist: the spool is not mounted, or was never marked",
                root_path, spool_marker_name);
  if (!fd) return fail_errno(errno, "{}/{}", root_path, spool_marker_name);
  char text[64];
  ssize_t n;
  do {
    n = ::read(fd.get(), text, sizeof text);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno(errno, "{}/{}", root_path, spool_marker_name);
  std::string_view line(text, static_cast<std::size_t>(n));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r' || line.back() == ' '))
    line.remove_suffix(1);
  auto uuid = Uuid::parse(line);
  if (!uuid) return fail(Errc::corrupt, "{}/{} does not hold a UUID", root_path, spool_marker_name);
  return *uuid;
}

std::unexpected<Error> unavailable(Error error) {
  error.code = Errc::unavailable;
  return std::unexpected(std::move(error));
}

}  // namespace

Result<std::unique_ptr<Spool>> Spool::create(SpoolConfig config, FileOps& ops) {
  if (!is_plain_absolute(config.root))
    return fail(Errc::invalid, "spool root \"{}\" must be an absolute path without \".\" and \"..\"",
                config.root);
  std::string clean = without_extra_slashes(config.root);
  config.root = clean.empty() ? "/" : clean;
  return std::unique_ptr<Spool>(new Spool(std::move(config), ops));
}

Result<SpoolHandle> Spool::open() {
  SpoolHandle handle;
  {
    std::lock_guard lock(mutex_);
    auto root = ops_->open_root(config_.root);
    if (!root && (root.error().sys == EMFILE || root.error().sys == ENFILE))
      return fail_at("this process has no descriptor left, raise its limit of open files (LimitNOFILE)",
                     std::move(root).error());
    if (!root) return unavailable(std::move(root).error());
    handle.root = std::move(*root);
    handle.order = next_order_++;
  }
  struct stat about{};
  if (::fstat(handle.root.get(), &about) != 0) return fail_errno(errno, "{}", config_.root);
  handle.device = about.st_dev;
  if (!config_.volume) return handle;
  auto found = read_marker(handle.root.get(), config_.root);
  if (!found) return unavailable(std::move(found).error());
  if (*found != *config_.volume)
    return fail(Errc::unavailable,
                "{}/{} names volume {}, the configuration names {}: another volume is mounted here",
                config_.root, spool_marker_name, found->text(), config_.volume->text());
  return handle;
}

Status Spool::check_not_failed(const SpoolHandle& handle) const {
  TL_TRY(ops_->check_not_failed(handle.root.get()));
  Fd marker = open_marker(handle.root.get());
  return marker ? ops_->check_not_failed(marker.get()) : Status{};
}

bool Spool::sees_failure(const SpoolHandle& handle) const {
  if (twinloft::sees_failure(handle.root.get())) return true;
  Fd marker = open_marker(handle.root.get());
  return marker && twinloft::sees_failure(marker.get());
}

Result<std::string> Spool::relative(const std::string& path) const {
  if (!is_plain_absolute(path))
    return fail(Errc::denied, "\"{}\" must be an absolute path without \".\" and \"..\"", path);
  std::string clean = without_extra_slashes(path);
  std::string prefix = config_.root == "/" ? "/" : config_.root + "/";
  if (clean.size() <= prefix.size() || clean.compare(0, prefix.size(), prefix) != 0)
    return fail(Errc::denied, "\"{}\" is not below the spool {}", path, config_.root);
  std::string relative = clean.substr(prefix.size());
  if (relative.starts_with(reserved_prefix))
    return fail(Errc::denied, "\"{}\": names beginning with {} at the spool's root are not for users", path,
                reserved_prefix);
  return relative;
}

Result<Uuid> read_spool_marker(const std::string& root) {
  Fd dir(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return fail_errno(errno, "open {}", root);
  return read_marker(dir.get(), root);
}

Status write_spool_marker(const std::string& root, const Uuid& volume) {
  Fd dir(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return fail_errno(errno, "open {}", root);
  auto found = read_marker(dir.get(), root);
  if (found && *found == volume) return {};
  if (found)
    return fail(Errc::conflict, "{}/{} already names volume {}", root, spool_marker_name, found->text());
  if (found.error().code != Errc::not_found) return std::unexpected(found.error());
  Fd file(::openat(dir.get(), spool_marker_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file) return fail_errno(errno, "create {}/{}", root, spool_marker_name);
  TL_TRY(write_all(file.get(), as_bytes(volume.text() + "\n")));
  // Readable for the mail user under any umask.
  if (::fchmod(file.get(), 0644) != 0) return fail_errno(errno, "chmod {}/{}", root, spool_marker_name);
  for (int fd : {file.get(), dir.get()})
    if (Status synced = sync_durably(fd); !synced)
      return fail_at(fmt::format("{}/{}", root, spool_marker_name), std::move(synced).error());
  return {};
}

}  // namespace twinloft::lmtpd
