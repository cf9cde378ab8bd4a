// Which mount of a file system this is.
//
// What was renamed and not synced is there as long as the mount lives, and may be missing at the next one. So
// a log says on which mount its entries were written.
#pragma once

#include <cstdint>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/intake_log/place.h"

namespace twinloft::lmtpd {

using intake_log::MountInstance;

// device: st_dev of a file on the file system. sys, proc: where these file systems are mounted, for tests.
// Errors: Errc::unavailable for a file system that the kernel does not show there, so that a remount could
// not be told from the mount before. ext4 and XFS are shown.
Result<MountInstance> find_mount_instance(std::uint64_t device, const std::string& sys = "/sys",
                                          const std::string& proc = "/proc");

}  // namespace twinloft::lmtpd
