#include "subscriptions.h"

#include <algorithm>
#include <cerrno>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view version_2 = "V\t2\n";
constexpr const char* file_name = "subscriptions";
constexpr const char* lock_name = "subscriptions.lock";
constexpr const char* aside_name = "subscriptions.lock.stale";
constexpr std::size_t file_bytes_max = 4u << 20;

bool has_line(std::string_view file, std::string_view line) {
  while (!file.empty()) {
    std::size_t end = std::min(file.find('\n'), file.size());
    if (file.substr(0, end) == line) return true;
    file.remove_prefix(std::min(end + 1, file.size()));
  }
  return false;
}

// What the clock says may have been set back since.
bool is_stale(const FileAbout& lock, std::int64_t now) {
  std::int64_t age = now - lock.changed_seconds;
  return age > lock_stale_seconds || age < -lock_stale_seconds;
}

std::unexpected<Error> held() {
  return fail(Errc::unavailable, "{}: another program holds it", lock_name);
}

// Takes it aside, and looks whether it is the one that was stale: another program may have been faster, and
// have made its own.
Status break_lock(FileOps& ops, int maildir, std::int64_t now) {
  auto seen = ops.about(maildir, lock_name);
  if (!seen && seen.error().sys == ENOENT) return {};
  if (!seen) return std::unexpected(std::move(seen).error());
  if (!is_stale(*seen, now)) return held();
  Status taken = ops.replace(maildir, lock_name, aside_name);
  if (!taken && taken.error().sys == ENOENT) return {};
  TL_TRY(taken);
  auto aside = ops.about(maildir, aside_name);
  if (aside && *aside != *seen) {
    (void)ops.rename(maildir, aside_name, maildir, lock_name);
    return held();
  }
  log_warning("{}: removed a lock that nobody has changed for {} s", lock_name, now - seen->changed_seconds);
  return ops.unlink(maildir, aside_name);
}

Result<Fd> take_lock(FileOps& ops, int maildir, std::int64_t now) {
  auto lock = ops.create_file(maildir, lock_name);
  if (lock || lock.error().sys != EEXIST) return lock;
  TL_TRY(break_lock(ops, maildir, now));
  lock = ops.create_file(maildir, lock_name);
  if (!lock && lock.error().sys == EEXIST) return held();
  return lock;
}

// One that stood still for long was taken over, and the name is another program's.
Status check_still_held(FileOps& ops, int maildir, int lock) {
  TL_TRY_ASSIGN(FileAbout own, ops.about(lock, ""));
  auto named = ops.about(maildir, lock_name);
  if (named && named->inode == own.inode) return {};
  if (!named && named.error().sys != ENOENT) return std::unexpected(std::move(named).error());
  return fail(Errc::unavailable, "{}: another program has taken it over", lock_name);
}

Status replace(FileOps& ops, int maildir, int lock, std::string_view folder) {
  auto old = ops.read_file(maildir, file_name, file_bytes_max);
  if (!old && old.error().sys != ENOENT) return std::unexpected(old.error());
  auto changed = add_subscription(old ? *old : std::string(), folder);
  if (changed) {
    TL_TRY(ops.write(lock, as_bytes(*changed)));
    TL_TRY(ops.sync_file(lock));
  }
  TL_TRY(check_still_held(ops, maildir, lock));
  return changed ? ops.replace(maildir, lock_name, file_name) : ops.unlink(maildir, lock_name);
}

}  // namespace

std::optional<std::string> add_subscription(std::string_view file, std::string_view folder) {
  std::string out(file);
  if (out.empty()) out = std::string(version_2) + "\n";
  if (!out.ends_with('\n')) out += '\n';  // before its version is looked at
  std::string line(folder.substr(1));
  if (out.starts_with(version_2)) std::ranges::replace(line, '.', '\t');
  if (has_line(out, line)) return std::nullopt;
  return out + line + '\n';
}

Status subscribe(FileOps& ops, int maildir, std::string_view folder, std::int64_t now) {
  TL_TRY_ASSIGN(Fd lock, take_lock(ops, maildir, now));
  Status done = replace(ops, maildir, lock.get(), folder);
  if (!done && check_still_held(ops, maildir, lock.get())) (void)ops.unlink(maildir, lock_name);
  return done;
}

}  // namespace twinloft::lmtpd
