// Parts of starting a child process and of seeing its end, for those that fork. base/program.h runs a program
// to its end.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft {

// A pipe whose ends are closed at an exec.
struct PipeEnds {
  Fd read, write;
};
Result<PipeEnds> make_pipe();
// What comes until the other end is closed. Errc::exhausted beyond `limit` bytes.
Result<std::string> read_to_end(int fd, std::size_t limit);

// Pointers to the texts and a null, as execve(2) takes arguments and environment. Valid while `texts` is
// unchanged.
std::vector<char*> exec_pointers(const std::vector<std::string>& texts);

// In the child, before execve(2), which keeps ignored and blocked signals: default actions, and none blocked.
void reset_signals();

// Blocks until the child has ended. Returns its status, as of waitpid(2). 0: unknown, since SIGCHLD is
// ignored.
int wait_for_child(pid_t child);

}  // namespace twinloft
