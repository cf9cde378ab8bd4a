#include "twinloft/lmtpd/intake/upkeep.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"
#include "twinloft/intake_log/mark.h"
#include "twinloft/lmtpd/intake/stuck.h"

namespace twinloft::lmtpd {

namespace {

constexpr unsigned set_aside_max = 1000;

Status unlink_if_there(int directory, const std::string& name, int flags = 0) {
  if (::unlinkat(directory, name.c_str(), flags) == 0 || errno == ENOENT) return {};
  return fail_errno(errno, "remove {}/{}", log_directory_name, name);
}

// A directory that has files stays.
Status remove_if_empty(int parent, const std::string& name) {
  Status removed = unlink_if_there(parent, name, AT_REMOVEDIR);
  if (!removed && (removed.error().sys == ENOTEMPTY || removed.error().sys == EEXIST)) return {};
  return removed;
}

// The owner of a log that cannot be opened is not known, so only the lock counts.
Status check_not_in_use(int directory) {
  Fd lock(::openat(directory, log_lock_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!lock) return {};
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return fail(Errc::conflict, "{} is in use by another process, such as lmtpd: stop it first",
              log_directory_name);
}

}  // namespace

Status create_log(int root, std::uint64_t bytes, Random& random) {
  const Uuid incarnation = Uuid::generate(random);
  return LogDirectory::create(root, log_shape_of(bytes), incarnation, intake_log::Mark(incarnation).encode());
}

// An empty lock file means that no program has used the segments.
Status remove_log(LogDirectory log, int root) {
  const int directory = log.directory();
  Fd lock(::openat(directory, log_lock_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!lock || ::ftruncate(lock.get(), 0) != 0)
    return fail_errno(errno, "empty {}/{}", log_directory_name, log_lock_name);
  TL_TRY(sync_durably(lock.get()));
  for (std::uint32_t i = 0; i < log.shape().segments; ++i)
    TL_TRY(unlink_if_there(directory, log_segment_name(i)));
  TL_TRY(sync_durably(directory));
  TL_TRY(unlink_if_there(directory, log_lock_name));
  TL_TRY(remove_if_empty(directory, stuck_directory_name));
  TL_TRY(sync_durably(directory));
  TL_TRY(remove_if_empty(root, log_directory_name));
  return sync_durably(root);
}

Result<std::string> set_log_aside(int root) {
  Fd directory(::openat(root, log_directory_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == ENOENT) return fail(Errc::not_found, "there is no {}", log_directory_name);
  if (directory) TL_TRY(check_not_in_use(directory.get()));
  for (unsigned n = 1; n <= set_aside_max; ++n) {
    std::string name = fmt::format("{}.set-aside-{}", log_directory_name, n);
    if (::renameat2(root, log_directory_name, root, name.c_str(), RENAME_NOREPLACE) != 0) {
      if (errno == EEXIST) continue;
      return fail_errno(errno, "rename {} to {} (as root: mv)", log_directory_name, name);
    }
    TL_TRY(sync_durably(root));
    return name;
  }
  return fail(Errc::exhausted, "{} logs have been set aside already: remove those that are not needed",
              set_aside_max);
}

}  // namespace twinloft::lmtpd
