// The mount table as FuseExport needs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::fuse {

struct MountEntry {
  unsigned device_minor = 0;  // also the number of the FUSE connection
  std::string type;           // "fuse", ...
};

// The topmost mount at exactly `path`, in the text of /proc/<pid>/mountinfo (proc(5)).
std::optional<MountEntry> find_mount(std::string_view mountinfo, std::string_view path);
Result<std::optional<MountEntry>> find_mount_now(const std::string& path);

// Whether a FUSE mount is at `path` whose server is gone.
bool is_dead_mount(const std::string& path);

// Makes sure that `path` is a regular file with nothing mounted on it: creates it, or removes the dead mount of an
// earlier process. Call only while no export of this process is mounted there.
Status prepare_mount_point(const std::string& path);

// Ends the FUSE connection of that number, where fusectl is mounted: all its waiting requests fail.
void abort_connection(unsigned number);

}  // namespace twinloft::repl::fuse
