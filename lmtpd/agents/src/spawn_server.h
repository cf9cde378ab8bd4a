// The spawner's own loop. Runs in the forked process and never returns.
//
// One thread with one epoll set: the control socket, SIGCHLD as a descriptor, and the output pipe of every
// run. The process is the subreaper of all agents, so that it gets every process that an agent leaves:
//
//   running --limit--> terminating (TERM) --grace--> killed (KILL) --kill_wait--> reported as unkillable
//      \____________________\______________________/
//           main process ended: KILL to the group, then `draining` until no process of the run is left; then
//           the reply
//
// An agent may leave a process in another session (a daemon). TWINLOFT_RUN in its environment names the run,
// and the process is killed with the run. A process that has changed its environment may be of any run, and
// is killed once no run is in flight.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spawn_child.h"
#include "twinloft/argv/argv.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/agents/spawner.h"

namespace twinloft::lmtpd {

class SpawnServer {
 public:
  SpawnServer(const std::vector<AgentSpec>& agents, std::vector<argv::Template> commands,
              SpawnerOptions options, Fd control);
  ~SpawnServer();
  // Ends the process after the other end of `control` was closed, and every run was killed.
  [[noreturn]] void serve();

 private:
  enum class Phase { running, terminating, killed, draining };
  struct Run {
    const AgentSpec* spec = nullptr;
    std::string id;    // of the transaction, for log lines
    std::string mark;  // of this run, in the environment of all its processes
    pid_t pid = -1;
    Fd output;
    Fd failure;
    Fd reply;
    std::string tail;
    Phase phase = Phase::running;
    bool timed_out = false;
    bool ended = false;  // the main process was reaped
    bool strays_left = false;
    int status = 0;  // as waitid gives it: si_status
    bool signalled = false;
    Instant deadline;
  };
  // An orphan, now a child of the spawner.
  struct Stray {
    std::string mark;  // of its run; empty: unknown
    std::optional<Instant> killed;
  };
  using Runs = std::map<pid_t, std::unique_ptr<Run>>;

  Status prepare();
  void turn();
  void look_at(std::span<const epoll_event> events);
  int wait_ms() const;
  void on_control();
  void accept_request(ByteSpan packet, Fd message, Fd reply);
  Result<AskAccount> check_identity(const RunRequest& request, int message) const;
  Result<ChildPlan> plan(const RunRequest& request, int message, const std::string& mark) const;
  void on_child_signal();
  void on_main_exit(Run& run);
  void read_output(Run& run, bool to_the_end);
  void on_deadline(Run& run);
  bool is_gone(const Run& run) const;
  Run* run_of(pid_t stray);
  void kill_strays();
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
  std::map<pid_t, Stray> strays_;
  std::uint64_t runs_started_ = 0;
  std::string mark_prefix_;
  bool is_root_ = false;
  std::string children_path_;
};

}  // namespace twinloft::lmtpd
