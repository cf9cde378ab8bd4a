// From fork(2) to execve(2): the steps of the child before the agent's program starts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/agents/agent_spec.h"
#include "twinloft/lmtpd/agents/run_as.h"

namespace twinloft::lmtpd {

struct ChildPlan {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // NAME=value
  std::string home;
  AskAccount ask;  // by the child itself: the name service may block
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  AgentLimits limits;
  bool no_new_privs = false;
  bool switch_user = false;  // the spawner is root; else it runs agents as itself only
  int message = -1;          // becomes stdin
};

// The failed step, which the child reports through a pipe. A successful execve(2) closes the pipe.
struct ChildFailure {
  std::uint32_t step = 0;  // index for step_name
  std::int32_t sys = 0;
};
const char* step_name(std::uint32_t step);

struct StartedChild {
  pid_t pid = -1;  // leader of its own session and process group
  Fd output;       // non-blocking read end of stdout and stderr
  Fd failure;      // non-blocking read end for one ChildFailure
};

// HOME, USER, LOGNAME, SHELL and PATH, then the passed variables, then the set variables, which replace the
// others.
std::vector<std::string> agent_environment(const AgentSpec& spec, const std::string& home,
                                           const std::string& user);

Result<StartedChild> start_child(const ChildPlan& plan);

}  // namespace twinloft::lmtpd
