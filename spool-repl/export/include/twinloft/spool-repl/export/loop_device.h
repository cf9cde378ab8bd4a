// Loop devices by ioctl (loop(4)), for the block device on the file of FUSE.
//
// The functions block while the kernel opens the backing file and reads its size. If this process serves the
// file, call them on a SideThread alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::exports {

struct LoopOptions {
  std::uint32_t block_bytes = 4096;  // logical block size of the device
  bool direct_io = true;             // an error if direct I/O does not take effect
  bool autoclear = false;            // the kernel detaches the device after its last user, also after a kill
  dev_t backing_device = 0;  // the file's st_dev, so that no file that is mounted over it is attached. 0: any
};

// An attachment of a loop device. After any program has detached the device, the kernel may attach another
// file to it. All functions act on this attachment alone.
struct LoopIdentity {
  std::string device;          // "/dev/loop3"
  std::uint64_t sequence = 0;  // the kernel's number of the attachment (diskseq, Linux 5.15). 0: unknown
  std::string backing_path;    // identifies the attachment if the sequence is unknown
};

struct AttachedLoop : LoopIdentity {
  Fd held;  // with autoclear: keeps the device attached until it has another user. Otherwise empty
};

// Attaches a free loop device to the file. The kernel passes each flush of the device on to the file. Without
// autoclear, the device stays attached until it is detached. Errors: Errc::unavailable (no free device, no
// loop module, direct I/O or flushes refused), Errc::conflict (the file is not on `backing_device`),
// Errc::io.
Result<AttachedLoop> attach_loop(const std::string& backing_path, const LoopOptions& options);

// Whether the attachment still exists. Reads sysfs alone, without opening the device or the file, and does
// not block.
bool is_attached(const LoopIdentity& loop);

// Detaches the device. Success also if the attachment no longer exists. Errors: Errc::unavailable while the
// device is in use; it stays attached.
Status detach_loop(const LoopIdentity& loop);

// Waits until the kernel has detached an autoclear device after its last user. Errors: Errc::unavailable.
Status await_cleared(const LoopIdentity& loop);

// Lets the kernel detach the device after its last user, and does not wait. For a device whose data is gone.
void abandon_loop(const LoopIdentity& loop);

// The attachments to the file that now has this path. Reads sysfs alone, without opening devices or files.
std::vector<LoopIdentity> loops_of(const std::string& backing_path);

// Whether the attachment's file is on `device` (st_dev). Also true if the file's server is gone, so that it
// cannot be asked. Blocks.
bool is_on(const LoopIdentity& loop, dev_t device);

// Whether publish_symlink() may create `link`: the path is free, or a symbolic link to a loop or ublk device.
Status check_symlink(const std::string& link);
// Makes `link` a symbolic link to `target` in one step. Of existing files, only a symbolic link to a loop or
// ublk device is replaced.
Status publish_symlink(const std::string& target, const std::string& link);
// Removes `link` if it is a symbolic link to `target`.
void withdraw_symlink(const std::string& target, const std::string& link);
// Removes a link that a killed process has left, since its device may belong to another program. True: a link
// was removed.
bool remove_stale_symlink(const std::string& link);

}  // namespace twinloft::repl::exports
