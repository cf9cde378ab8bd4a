#include "twinloft/spool-repl/io/direct_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace twinloft::repl::io {

namespace {

std::unexpected<Error> in_use(const std::string& path, std::string_view why) {
  return fail(Errc::unavailable, "{}: in use: {}", path, why);
}

Status open_fd(DirectFile& file, int flags) {
  file.fd = Fd(::open(file.path.c_str(), flags | O_DIRECT));
  if (!file.fd && errno == EINVAL) {
    file.direct = false;
    file.fd = Fd(::open(file.path.c_str(), flags));
  }
  if (!file.fd && errno == EBUSY)
    return in_use(file.path, "it is mounted, belongs to another device, or is open in another process");
  if (!file.fd) return fail_errno(errno, "{}: cannot be opened", file.path);
  return {};
}

Status query_device(DirectFile& file) {
  if (::ioctl(file.fd.get(), BLKGETSIZE64, &file.size_bytes) != 0)
    return fail_errno(errno, "{}: its size cannot be read", file.path);
  int sector = 0;
  if (::ioctl(file.fd.get(), BLKSSZGET, &sector) != 0)
    return fail_errno(errno, "{}: its sector size cannot be read", file.path);
  if (sector <= 0 || sector > 4096)
    return fail(Errc::invalid, "{}: sectors of {} bytes; at most 4096 are supported", file.path, sector);
  file.alignment = static_cast<std::uint32_t>(sector);
  return {};
}

}  // namespace

Result<DirectFile> open_direct(const std::string& path, Access access) {
  DirectFile file;
  file.path = path;
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return fail_errno(errno, "{}", path);
  file.block_device = S_ISBLK(st.st_mode);
  if (!file.block_device && !S_ISREG(st.st_mode))
    return fail(Errc::invalid, "{}: neither a regular file nor a block device", path);

  int flags = O_CLOEXEC | O_NOCTTY | (access == Access::read_only ? O_RDONLY : O_RDWR);
  if (file.block_device && access == Access::read_write) flags |= O_EXCL;
  TL_TRY(open_fd(file, flags));
  // The name may belong to another file since the check.
  dev_t device = st.st_dev;
  ino_t inode = st.st_ino;
  if (::fstat(file.fd.get(), &st) != 0) return fail_errno(errno, "{}", path);
  if (st.st_dev != device || st.st_ino != inode)
    return fail(Errc::conflict, "{}: replaced while it was opened", path);
  if (file.block_device) {
    TL_TRY(query_device(file));
    int read_only = 0;  // the open may succeed on a read-only device, and the first write then fails
    if (access == Access::read_write && ::ioctl(file.fd.get(), BLKROGET, &read_only) == 0 && read_only != 0)
      return fail(Errc::invalid, "{}: the device is read-only (blockdev --getro)", path);
    return file;
  }
  if (access == Access::read_write && ::flock(file.fd.get(), LOCK_EX | LOCK_NB) != 0)
    return in_use(path, "another process has locked it, probably a spool-repl that serves the volume");
  file.size_bytes = static_cast<std::uint64_t>(st.st_size);
  return file;
}

Status make_durable(int fd, const std::string& directory) {
  if (::fsync(fd) < 0) return fail_errno(errno, "{}: the new file cannot be made durable", directory);
  Fd dir(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir || ::fsync(dir.get()) < 0) return fail_errno(errno, "{}: cannot be made durable", directory);
  return {};
}

}  // namespace twinloft::repl::io
