// Identifies the file system on a block device, and mounts it. Only its own recovery changes the device.
#pragma once

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::snapshot {

// "ext4", "ext3", "ext2" or "xfs". Errors: Errc::invalid with the content otherwise: a partition table,
// nothing, another file system.
Result<std::string> file_system_on(const std::string& device);

// Mounts it read-only. The journal of the file system is replayed.
Status mount_file_system(const std::string& device, const std::string& type, const std::string& directory);

}  // namespace twinloft::repl::snapshot
