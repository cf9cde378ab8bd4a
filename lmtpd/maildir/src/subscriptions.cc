#include "subscriptions.h"

#include <cerrno>

#include "twinloft/base/log.h"
#include "twinloft/mail/subscriptions.h"

namespace twinloft::lmtpd {

namespace {

constexpr const char* aside_name = "subscriptions.lock.stale";
constexpr std::size_t file_bytes_max = 4u << 20;

std::unexpected<Error> held() {
  return fail(Errc::unavailable, "{}: another program holds it", mail::subscriptions_lock_name);
}

// Renames the lock, then checks that it is the stale one: another program may have replaced it by a lock of
// its own meanwhile.
Status break_lock(FileOps& ops, int maildir, std::int64_t now) {
  auto seen = ops.about(maildir, mail::subscriptions_lock_name);
  if (!seen && seen.error().sys == ENOENT) return {};
  if (!seen) return std::unexpected(std::move(seen).error());
  if (!mail::is_stale_lock(seen->changed_seconds, now)) return held();
  Status taken = ops.replace(maildir, mail::subscriptions_lock_name, aside_name);
  if (!taken && taken.error().sys == ENOENT) return {};
  TL_TRY(taken);
  auto aside = ops.about(maildir, aside_name);
  if (aside && *aside != *seen) {
    (void)ops.rename(maildir, aside_name, maildir, mail::subscriptions_lock_name);
    return held();
  }
  log_warning("{}: removed a stale lock, unchanged for {} s", mail::subscriptions_lock_name,
              now - seen->changed_seconds);
  return ops.unlink(maildir, aside_name);
}

Result<Fd> take_lock(FileOps& ops, int maildir, std::int64_t now) {
  auto lock = ops.create_file(maildir, mail::subscriptions_lock_name);
  if (lock || lock.error().sys != EEXIST) return lock;
  TL_TRY(break_lock(ops, maildir, now));
  lock = ops.create_file(maildir, mail::subscriptions_lock_name);
  if (!lock && lock.error().sys == EEXIST) return held();
  return lock;
}

// If this process was suspended for long, another program may have broken the lock and have its own at the
// name.
Status check_still_held(FileOps& ops, int maildir, int lock) {
  TL_TRY_ASSIGN(FileAbout own, ops.about(lock, ""));
  auto named = ops.about(maildir, mail::subscriptions_lock_name);
  if (named && named->inode == own.inode) return {};
  if (!named && named.error().sys != ENOENT) return std::unexpected(std::move(named).error());
  return fail(Errc::unavailable, "{}: another program has taken it over", mail::subscriptions_lock_name);
}

Status replace(FileOps& ops, int maildir, int lock, std::string_view folder) {
  auto old = ops.read_file(maildir, mail::subscriptions_name, file_bytes_max);
  if (!old && old.error().sys != ENOENT) return std::unexpected(old.error());
  auto changed = mail::add_subscription(old ? *old : std::string(), folder);
  if (changed) {
    TL_TRY(ops.write(lock, as_bytes(*changed)));
    TL_TRY(ops.sync_file(lock));
  }
  TL_TRY(check_still_held(ops, maildir, lock));
  return changed ? ops.replace(maildir, mail::subscriptions_lock_name, mail::subscriptions_name)
                 : ops.unlink(maildir, mail::subscriptions_lock_name);
}

}  // namespace

Status subscribe(FileOps& ops, int maildir, std::string_view folder, std::int64_t now) {
  TL_TRY_ASSIGN(Fd lock, take_lock(ops, maildir, now));
  Status done = replace(ops, maildir, lock.get(), folder);
  if (!done && check_still_held(ops, maildir, lock.get()))
    (void)ops.unlink(maildir, mail::subscriptions_lock_name);
  return done;
}

}  // namespace twinloft::lmtpd
