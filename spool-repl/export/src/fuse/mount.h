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
  dev_t device = 0;  // st_dev of what is in it
  std::string type;
};
// Mounts at exactly `path` in the text of /proc/<pid>/mountinfo (proc(5)); later ones lie on top of earlier
// ones.
std::vector<MountEntry> mounts_at(std::string_view mountinfo, std::string_view path);
// The type of the topmost of them.
std::optional<std::string> mounted_type(std::string_view mountinfo, std::string_view path);

// The topmost mount at `path` now.
Result<std::optional<MountEntry>> topmost_mount(const std::string& path);

// Whether a FUSE mount is at `path` whose server is gone.
bool is_dead_mount(const std::string& path);

// Makes sure that `path` is a regular file with nothing mounted on it: creates it, or removes the dead mount
// of an earlier process. Call only while no export of this process is mounted there.
Status prepare_mount_point(const std::string& path);

// Takes away the mount at `path` whose device is `own`, and no other. Gone already is success. Errors:
// unavailable (in use, or something else is mounted on it).
Status unmount_own(const std::string& path, dev_t own);

// Ends the FUSE connection behind the mount of device `own`, so that all its waiting requests fail, and takes
// the mount away as soon as nobody holds it. Waits for nothing. What else is mounted at `path` stays.
// `connected`: the connection has not ended yet, so that the number `own` is still its.
void abort_mount(const std::string& path, dev_t own, bool connected);

}  // namespace twinloft::repl::fuse
