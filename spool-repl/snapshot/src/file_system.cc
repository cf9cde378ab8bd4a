#include "file_system.h"

#include <blkid/blkid.h>
#include <sys/mount.h>

#include <cerrno>
#include <memory>

namespace twinloft::repl::snapshot {

namespace {

std::string value_of(blkid_probe probe, const char* name) {
  const char* value = nullptr;
  return blkid_probe_lookup_value(probe, name, &value, nullptr) == 0 && value ? value : "";
}

bool is_ext(const std::string& type) {
  return type == "ext4" || type == "ext3" || type == "ext2";
}

}  // namespace

Result<std::string> file_system_on(const std::string& device) {
  std::unique_ptr<blkid_struct_probe, decltype(&blkid_free_probe)> probe(
      blkid_new_probe_from_filename(device.c_str()), &blkid_free_probe);
  if (!probe) return fail_errno(errno, "{}: cannot be searched for a file system", device);
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_TYPE);
  blkid_probe_enable_partitions(probe.get(), 1);
  int found = blkid_do_safeprobe(probe.get());
  if (found == -1)
    return fail_errno(errno != 0 ? errno : EIO, "{}: the search for a file system failed", device);
  if (found == -2)
    return fail(
        Errc::invalid,
        "the volume has signatures of several file systems: erase those that are not in use (wipefs)");
  std::string type = value_of(probe.get(), "TYPE"), table = value_of(probe.get(), "PTTYPE");
  if (is_ext(type) || type == "xfs") return type;
  if (!type.empty())
    return fail(Errc::invalid, "the volume holds {}: mail can be extracted from ext2, ext3, ext4 and XFS",
                type);
  if (!table.empty())
    return fail(Errc::invalid,
                "the volume holds a partition table ({}): mail can be extracted from a file system on the "
                "whole volume",
                table);
  return fail(Errc::invalid, "the volume has no known file system");
}

Status mount_file_system(const std::string& device, const std::string& type, const std::string& directory) {
  // nouuid: the winner's XFS may be mounted, and has the same UUID. Errors of the image must not affect the
  // machine, but the superblock of ext may request a panic.
  const char* options = is_ext(type) ? "errors=remount-ro" : "nouuid";
  constexpr unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME;
  int rc = ::mount(device.c_str(), directory.c_str(), type.c_str(), flags, options);
  if (rc != 0 && errno == ENODEV && is_ext(type))
    rc = ::mount(device.c_str(), directory.c_str(), "ext4", flags, options);
  if (rc != 0)
    return fail_errno(errno, "the {} file system of the image cannot be mounted (the kernel's log says why)",
                      type);
  return {};
}

}  // namespace twinloft::repl::snapshot
