// Functions for code that calls fork(2): start of a child process, and its end. base/program.h runs a program
// to its end.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft {

// A pipe with close-on-exec ends.
struct PipeEnds {
  Fd read, write;
};
Result<PipeEnds> make_pipe();
// Reads until the other end is closed. Errors: Errc::exhausted (more than `limit` bytes).
Result<std::string> read_to_end(int fd, std::size_t limit);

// Pointers to the texts and a null pointer, as execve(2) needs them. Valid while `texts` is unchanged.
std::vector<char*> exec_pointers(const std::vector<std::string>& texts);

// Sets all signals to their default actions, and blocks none. Call it in the child before execve(2), which
// keeps ignored and blocked signals.
void reset_signals();

// Blocks until the child has ended. Returns its status, as of waitpid(2). 0: unknown, since SIGCHLD is
// ignored.
int wait_for_child(pid_t child);

// Raises the soft limit of open files to the hard limit. The usual soft limit of 1024 exists for select(2).
// The processes that this process starts afterwards have the same limit.
Status raise_descriptor_limit();

}  // namespace twinloft
