// The mount table as FuseExport needs it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::fuse {

// The file system type of the topmost mount at exactly `path`, in the text of /proc/<pid>/mountinfo (proc(5)).
std::optional<std::string> mounted_type(std::string_view mountinfo, std::string_view path);

// Whether a FUSE mount is at `path` whose server is gone.
bool is_dead_mount(const std::string& path);

// Makes sure that `path` is a regular file with nothing mounted on it: creates it, or removes the dead mount of an
// earlier process. Call only while no export of this process is mounted there.
Status prepare_mount_point(const std::string& path);

// Ends the FUSE connection behind the mount at `path`, so that all its waiting requests fail, and takes the mount away
// as soon as nobody holds it. Waits for nothing.
void abort_mount(const std::string& path);

}  // namespace twinloft::repl::fuse
