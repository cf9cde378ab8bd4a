// Finds the content of a file or block device, before `create` writes to it.
#pragma once

#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::repl::daemon {

// Returns an entry for each signature: file systems, partition tables, members of a RAID or volume group,
// swap, encrypted volumes, DRBD, and journals and data areas of spool-repl. volume_bytes: where a data
// area's label is searched, besides the end. Empty: no known content. Errors: the content cannot be read,
// and is unknown.
Result<std::vector<std::string>> contents_of(const std::string& path, std::uint64_t volume_bytes);

// Whether a part of spool-repl is among the signatures. A volume cannot adopt such content.
bool is_ours(const std::vector<std::string>& found);

// Erases the signatures of other programs, also at the device's end. Otherwise the machine might assemble
// the rest of them at boot.
Status wipe_signatures(const std::string& path);

// The loop device, such as "/dev/loop3", of the regular file `path`. Empty: none.
std::string loop_device_on(const std::string& path);

}  // namespace twinloft::repl::daemon
