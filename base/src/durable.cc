#include "twinloft/base/durable.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "twinloft/base/fd.h"

namespace twinloft {

namespace {

constexpr const char* absent_attribute = "user.twinloft.absent";

// Errors that do not show a failure of the file system: no permission, no extended attributes, a full disk.
constexpr std::array harmless = {ENODATA, EACCES, EPERM, EOPNOTSUPP, ENOSYS, ENOSPC, EDQUOT};

int remove_absent(int fd) {
  int result;
  do {
    result = ::fremovexattr(fd, absent_attribute);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

Status write_range(int fd, unsigned flags) {
  int result;
  do {
    result = ::sync_file_range(fd, 0, 0, flags);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return fail_errno(errno, "sync_file_range");
  return {};
}

}  // namespace

Status check_not_failed(int fd) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return fail_errno(errno, "the file system has failed");
  int error = remove_absent(fd);
  if (error == 0 || std::ranges::find(harmless, error) != harmless.end()) return {};
  return fail_errno(error, "the file system has failed");
}

bool sees_failure(int fd) {
  int error = remove_absent(fd);
  return error == 0 || error == ENODATA;
}

Status sync_durably(int fd) {
  if (::fsync(fd) != 0) return fail_errno(errno, "fsync");
  return check_not_failed(fd);
}

Status start_write_back(int fd) {
  return write_range(fd, SYNC_FILE_RANGE_WRITE);
}

Status sync_parent_durably(const std::string& path) {
  std::size_t slash = path.rfind('/');
  std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Fd fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "{}", parent);
  if (Status synced = sync_durably(fd.get()); !synced)
    return fail(synced.error().code, "{}: {}", parent, synced.error().message);
  return {};
}

Status write_back(int fd) {
  return write_range(fd, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

Status sync_file_system_durably(int fd) {
  if (::syncfs(fd) != 0) return fail_errno(errno, "syncfs");
  return check_not_failed(fd);
}

}  // namespace twinloft
