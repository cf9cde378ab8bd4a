// What a file or block device holds already: asked before `create` writes there.
#pragma once

#include <string>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::repl::daemon {

// One entry for each signature: file systems, partition tables, members of a RAID or volume group, swap,
// encrypted volumes, DRBD, and journals and data areas of spool-repl. `volume_bytes`: where a data area's
// label is looked for, beside the end. Empty: nothing that is known. Errors: it cannot be read; then nothing
// is known about it.
Result<std::vector<std::string>> contents_of(const std::string& path, std::uint64_t volume_bytes);

// Whether a part of spool-repl is among them: it is no content that a volume could adopt.
bool is_ours(const std::vector<std::string>& found);

// Erases the signatures of others, at the device's end too: what is left of them would be found, and
// assembled, at a boot.
Status wipe_signatures(const std::string& path);

// "/dev/loop3", which the regular file `path` is attached to; empty: none.
std::string loop_device_on(const std::string& path);

}  // namespace twinloft::repl::daemon
