// The file system on a block device: which one it is, and mounting it without changing more than its own
// recovery does.
#pragma once

#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::snapshot {

// "ext4", "ext3", "ext2" or "xfs". Errc::invalid for anything else, with what it is: a partition table,
// nothing, another one.
Result<std::string> file_system_on(const std::string& device);

// Read-only, which replays the file system's journal all the same.
Status mount_file_system(const std::string& device, const std::string& type, const std::string& directory);

}  // namespace twinloft::repl::snapshot
