// Loop devices by ioctl (loop(4)), for the block device in front of the FUSE file.
//
// All of these block while the kernel opens and measures the backing file: where this process serves that
// file, call them on a SideThread only.
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
  bool direct_io = true;             // required to be in effect, not only wished for
  bool autoclear = false;    // detached by the kernel when nobody has it open any more, also after a kill
  dev_t backing_device = 0;  // what the file must lie on (st_dev), so that nothing mounted over it is
                             // attached; 0: any
};

// One attachment of a loop device. Once it is detached, by anybody, the kernel gives its number to another
// file: whatever is done to the device, or said of it, is for this attachment only.
struct LoopIdentity {
  std::string device;          // "/dev/loop3"
  std::uint64_t sequence = 0;  // the kernel's number of this attachment (diskseq, Linux 5.15); 0: not known
  std::string backing_path;    // decides where the sequence is not known
};

struct AttachedLoop : LoopIdentity {
  Fd held;  // with autoclear: keeps it attached until it is mounted, say; else empty
};

// Attaches a free loop device to the file. Without autoclear it stays until detached.
// Errors: unavailable (no free device, no loop module, direct I/O refused), conflict (not on
// `backing_device`), io.
Result<AttachedLoop> attach_loop(const std::string& backing_path, const LoopOptions& options);

// Whether that attachment is there still. By sysfs alone: touches neither device nor file, and blocks for
// nothing.
bool is_attached(const LoopIdentity& loop);

// Detaches. Errors: unavailable while the device is in use; it then stays attached. Gone already is success.
Status detach_loop(const LoopIdentity& loop);

// Waits until the kernel has detached an autoclear device, after its last user has gone. Errors: unavailable.
Status await_cleared(const LoopIdentity& loop);

// Detaches once nobody uses the device any more, without waiting for that. For a device whose data has gone.
void abandon_loop(const LoopIdentity& loop);

// Attachments to a file whose path is that now, from sysfs; touches neither devices nor file.
std::vector<LoopIdentity> loops_of(const std::string& backing_path);

// Whether the attachment's file lies on `device` (st_dev), or can not be asked any more, its server being
// gone. Blocks.
bool is_on(const LoopIdentity& loop, dev_t device);

// Whether `link` could be made: nothing is there, or a symbolic link to a loop or ublk device.
Status check_symlink(const std::string& link);
// Makes `link` a symbolic link to `target` in one step. Replaces a symbolic link to a loop or ublk device,
// and nothing else.
Status publish_symlink(const std::string& target, const std::string& link);
// Removes `link` if it is a symbolic link to `target`.
void withdraw_symlink(const std::string& target, const std::string& link);
// Removes a link that a killed process has left behind: its device may be somebody else's by now. True: there
// was one.
bool remove_stale_symlink(const std::string& link);

}  // namespace twinloft::repl::exports
