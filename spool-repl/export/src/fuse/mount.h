// The mount table as FuseExport needs it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::repl::fuse {

struct MountEntry {
  dev_t device = 0;  // st_dev of its files
  std::string type;
};
// The mounts at exactly `path` in the text of /proc/<pid>/mountinfo (proc(5)). Later mounts cover earlier
// mounts.
std::vector<MountEntry> mounts_at(std::string_view mountinfo, std::string_view path);
// The type of the topmost mount.
std::optional<std::string> mounted_type(std::string_view mountinfo, std::string_view path);

// The topmost mount at `path` now.
Result<std::optional<MountEntry>> topmost_mount(const std::string& path);

// Whether `path` has a FUSE mount whose server is gone.
bool is_dead_mount(const std::string& path);

// Makes `path` a regular file without a mount: creates it, or removes the dead mount of an earlier process.
// Call it only while no export of this process is mounted there.
Status prepare_mount_point(const std::string& path);

// Unmounts `path` if the device of the mount is `own`. Success also if this mount no longer exists. Errors:
// Errc::unavailable (in use, or covered by another mount).
Status unmount_own(const std::string& path, dev_t own);

// Ends the FUSE connection of the mount with device `own`, so that its waiting requests fail. The mount
// disappears after its last user. Does not wait. Other mounts at `path` stay. connected: the connection has
// not ended, so that the number `own` still belongs to it.
void abort_mount(const std::string& path, dev_t own, bool connected);

}  // namespace twinloft::repl::fuse
