// Attaches and detaches the loop device on a file that this process serves, in a process of its own.
//
// Such a call may wait for the file in a way that not even SIGKILL ends. The wait ends with the FUSE
// connection, which ends when /dev/fuse is closed. A killed process gives up its descriptors and its memory
// with its last thread, and the memory's io_urings keep /dev/fuse open. So a waiting thread of the server,
// even one with its own descriptors, would keep the connection and itself without an end.
#pragma once

#include <string>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/export/loop_device.h"

namespace twinloft::repl::exports {

// For main() of each program with a DeviceExport, before anything else. The process of the calls below is
// another process of the same program: there, this function does the work and does not return.
void serve_as_loop_process(int argc, char** argv);

// As attach_loop() and detach_loop(), for a thread that may block. The new process has no descriptor, no
// memory and no environment of this process, and ends with it. The device does not depend on the new process:
// `autoclear` is not allowed. Further errors: Errc::unavailable if the process fails.
Result<LoopIdentity> attach_loop_apart(const std::string& backing_path, const LoopOptions& options);
Status detach_loop_apart(const LoopIdentity& loop);

}  // namespace twinloft::repl::exports
