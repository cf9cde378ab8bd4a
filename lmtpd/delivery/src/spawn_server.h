// The spawner's own loop. Runs in the forked process and never returns.
//
// One thread, one epoll set: the control socket, SIGCHLD as a descriptor, and the output pipe of every run.
// The process is the subreaper of all agents, so nothing an agent leaves behind escapes from it:
//
//   running --limit--> terminating (TERM) --grace--> killed (KILL) --kill_wait--> reported as unkillable
//      \____________________\______________________/
//           main process ended: KILL to the group, then `draining` until no process of the run is left; then
//           the reply
//
// What was orphaned and belongs to no session of a running agent (a daemon that called setsid) is killed as
// well.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spawn_child.h"
#include "twinloft/argv/argv.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/delivery/spawner.h"

namespace twinloft::lmtpd {

class SpawnServer {
 public:
  SpawnServer(const std::vector<AgentSpec>& agents, std::vector<argv::Template> commands,
              SpawnerOptions options, Fd control);
  ~SpawnServer();
  // Ends the process when the other end of `control` is closed, after every run was killed.
  [[noreturn]] void serve();

 private:
  enum class Phase { running, terminating, killed, draining };
  struct Run {
    const AgentSpec* spec = nullptr;
    std::string id;
    pid_t pid = -1;
    Fd output;
    Fd failure;
    Fd reply;
    std::string tail;
    Phase phase = Phase::running;
    bool timed_out = false;
    bool ended = false;  // the main process was reaped
    int status = 0;      // as waitid gives it: si_status
    bool signalled = false;
    Instant deadline;
  };
  using Runs = std::map<pid_t, std::unique_ptr<Run>>;

  Status prepare();
  void make_room_for_descriptors();
  void turn();
  int wait_ms() const;
  void on_control();
  void accept_request(ByteSpan packet, Fd message, Fd reply);
  Status check_identity(const RunRequest& request, int message) const;
  Result<ChildPlan> plan(const RunRequest& request, int message) const;
  void on_child_signal();
  void on_main_exit(Run& run);
  void read_output(Run& run, bool to_the_end);
  void on_deadline(Run& run);
  bool is_gone(const Run& run) const;
  bool kill_strays();
  void finish(Run& run);
  RunResult result_of(Run& run) const;
  void send_result(const Fd& reply, const RunResult& result) const;
  [[noreturn]] void stop();

  const std::vector<AgentSpec>& agents_;
  std::vector<argv::Template> commands_;
  SpawnerOptions options_;
  OsClock clock_;
  Fd control_;
  Fd epoll_;
  Fd child_signal_;
  Runs runs_;
  std::map<pid_t, Instant> strays_;  // killed orphans, and since when
  bool is_root_ = false;
  std::string children_path_;
};

}  // namespace twinloft::lmtpd
