#include "twinloft/lmtpd/spool/unnamed_files.h"

#include <cerrno>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// The file could be created in this directory, so a permission that the link misses is not the directory's.
bool is_general(UnnamedStep step, int sys) {
  switch (step) {
    case UnnamedStep::create:
      return sys == EOPNOTSUPP || sys == EISDIR || sys == EINVAL;  // open(2), O_TMPFILE
    case UnnamedStep::link:
      return sys == EOPNOTSUPP || sys == EPERM || sys == EACCES || sys == EXDEV;
  }
  return false;
}

}  // namespace

bool UnnamedFiles::may_try(std::uint64_t device) const {
  std::lock_guard lock(mutex_);
  return !given_up_.contains(device);
}

bool UnnamedFiles::give_up(std::uint64_t device, UnnamedStep step, const Error& error) {
  if (!is_general(step, error.sys)) return false;
  std::lock_guard lock(mutex_);
  if (given_up_.insert(device).second)
    log_warning(
        "durability: each message is written in tmp/ and renamed: the spool has no files without a "
        "name ({})",
        error.message);
  return true;
}

}  // namespace twinloft::lmtpd
