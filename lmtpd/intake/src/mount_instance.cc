#include "twinloft/lmtpd/intake/mount_instance.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <string_view>

#include "twinloft/base/fd.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::size_t line_bytes_max = 4096;

Result<std::string> line_of(const std::string& path) {
  TL_TRY_ASSIGN(std::string text, read_file(path, line_bytes_max));
  return text.substr(0, text.find('\n'));
}

std::unexpected<Error> unknown(std::string what) {
  return fail(Errc::unavailable, "one mount of the spool cannot be told from the next: {}", what);
}

// The name of the device in sysfs, such as "loop0".
Result<std::string> device_name(const std::string& link) {
  char target[PATH_MAX];
  ssize_t n = ::readlink(link.c_str(), target, sizeof target);
  if (n < 0) return unknown(fmt::format("it is on no block device ({} is missing)", link));
  std::string_view path(target, static_cast<std::size_t>(n));
  return std::string(path.substr(path.rfind('/') + 1));
}

Result<std::uint64_t> sysfs_inode(const std::string& sys, const std::string& name) {
  for (const char* type : {"ext4", "xfs"}) {
    struct stat found{};
    if (::stat(fmt::format("{}/fs/{}/{}", sys, type, name).c_str(), &found) == 0) return found.st_ino;
  }
  return unknown(fmt::format("{}/fs shows no ext4 or XFS on {}", sys, name));
}

}  // namespace

Result<MountInstance> find_mount_instance(std::uint64_t device, const std::string& sys,
                                          const std::string& proc) {
  MountInstance out;
  TL_TRY_ASSIGN(std::string boot, line_of(proc + "/sys/kernel/random/boot_id"));
  TL_TRY_ASSIGN(out.boot_id, Uuid::parse(boot));
  const std::string link = fmt::format("{}/dev/block/{}:{}", sys, ::gnu_dev_major(device),
                                       ::gnu_dev_minor(device));
  TL_TRY_ASSIGN(std::string name, device_name(link));
  TL_TRY_ASSIGN(out.sysfs_inode, sysfs_inode(sys, name));
  // A partition has the number of its disk.
  auto number = line_of(link + "/diskseq");
  if (!number) number = line_of(link + "/../diskseq");
  if (!number) return unknown(fmt::format("{}/diskseq is missing", link));
  const char* end = number->data() + number->size();
  if (std::from_chars(number->data(), end, out.diskseq).ptr != end || number->empty())
    return unknown(fmt::format("{}/diskseq has \"{}\"", link, *number));
  return out;
}

}  // namespace twinloft::lmtpd
