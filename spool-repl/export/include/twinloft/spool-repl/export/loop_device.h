// Loop devices by ioctl (loop(4)), for the block device in front of the FUSE file.
//
// All of these block while the kernel opens and measures the backing file: where this process serves that file, call
// them on a SideThread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::exports {

struct LoopOptions {
  std::uint32_t block_bytes = 4096;  // logical block size of the device
  bool direct_io = true;             // required to be in effect, not only wished for
  bool autoclear = false;            // detached by the kernel when nobody has it open any more, also after a kill
};

struct AttachedLoop {
  std::string device;  // "/dev/loop3"
  Fd held;             // with autoclear: keeps it attached until it is mounted, say; else empty
};

// Attaches a free loop device to the file. Without autoclear it stays until detached.
// Errors: unavailable (no free device, no loop module, direct I/O refused), io.
Result<AttachedLoop> attach_loop(const std::string& backing_path, const LoopOptions& options);

// Detaches. Errors: unavailable while the device is in use; it then stays attached. Nothing to do is success.
Status detach_loop(const std::string& device);

// Waits until the kernel has detached an autoclear device from that file, after its last user has gone. Errors: unavailable.
// Nothing is done to the device: it may be somebody else's by now.
Status await_cleared(const std::string& device, const std::string& backing_path);

// Detaches once nobody uses the device any more, without waiting for that. For a device whose data has gone.
void abandon_loop(const std::string& device);

// Devices whose backing file has that path now, from sysfs; touches neither devices nor file.
std::vector<std::string> loops_of(const std::string& backing_path);

// Makes `link` a symbolic link to `target` in one step. Replaces a symbolic link, and nothing else.
Status publish_symlink(const std::string& target, const std::string& link);
// Removes `link` if it is a symbolic link to `target`.
void withdraw_symlink(const std::string& target, const std::string& link);

}  // namespace twinloft::repl::exports
