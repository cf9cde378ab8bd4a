// The spawner: the only privileged process of lmtpd besides the supervisor, and the server process's handle
// on it.
//
// start() forks it before any thread and any socket exists. It has the configured agents, and accepts one
// kind of request: run agent N with these values as this user. A request is a SOCK_SEQPACKET message with
// checked fields, and two descriptors: the message (the agent's stdin), and the end of a socket pair for the
// result. Several runs may be in flight.
//
// A run ends when none of its processes is left. The whole process group is killed, also after a normal end.
// Processes that have left the group (setsid) are found by TWINLOFT_RUN in their environment, and killed.
// Processes that have changed their environment are killed once no run is in flight.
//
// Spawner::run() is called on worker threads. It blocks until the run has ended: at most for the agent's time
// limit and the time of its end. Spawner::beat() detects a spawner that hangs.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/agents/agent_spec.h"
#include "twinloft/lmtpd/agents/run_as.h"

namespace twinloft::lmtpd {

struct RunRequest {
  std::uint32_t agent = 0;  // index into the specs given to start()
  std::string id;           // transaction, for log lines
  std::string user;         // USER and LOGNAME
  std::uint32_t uid = 0;    // 0 is refused
  std::uint32_t gid = 0;
  std::string home;  // the working directory, or / if it cannot be entered
  std::vector<std::pair<std::string, std::string>> values;  // macro name -> value
};

struct RunResult {
  enum class End : std::uint32_t {
    exited,       // `value`: exit code
    signalled,    // `value`: signal
    timed_out,    // its group was killed
    not_started,  // `value`: errno of the failing step; `output` names it
    refused,      // the request or a value was refused; `output` says why
    busy,         // runs_max runs are in flight
    unkillable,   // killed, but still alive: its further effect is unknown
    lost,         // the spawner has ended, or hangs
  };
  End end = End::lost;
  int value = 0;
  std::string output;  // the end of stdout and stderr, raw bytes
};

struct SpawnerOptions {
  std::uint32_t runs_max = 512;  // at a time; fewer if the limit of open files requires it
  RunAsRules run_as{};
  std::chrono::milliseconds kill_wait{30'000};    // until a killed process has ended
  std::chrono::milliseconds answer_wait{30'000};  // for the spawner itself; afterwards it counts as hung
};

class Spawner {
 public:
  // Forks. Call it while the process has a single thread. Errors: a wrong agent, with its name; no process or
  // no socket is available.
  static Result<std::unique_ptr<Spawner>> start(std::vector<AgentSpec> agents, SpawnerOptions options = {});
  // Ends the spawner and every run, and waits for it, unless it hangs.
  ~Spawner();
  // Makes the spawner end every run and itself, without waiting. From then on, every run ends as `lost`.
  void give_up() const;
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // message: a descriptor at position 0. Thread-safe.
  RunResult run(const RunRequest& request, int message) const;

  const std::vector<AgentSpec>& agents() const { return agents_; }
  std::optional<std::uint32_t> find(std::string_view name) const;
  std::uint32_t runs_max() const { return options_.runs_max; }  // further runs end as `busy`
  // Requests a sign of life from time to time, without blocking. Call it about once a second, in one thread.
  // Errors: no sign of life for answer_wait. From then on, every run ends as `lost`.
  Status beat();
  // False once the spawner has ended or hangs. From then on, every run ends as `lost`.
  bool alive() const { return !dead_.load(std::memory_order_relaxed); }
  pid_t pid() const { return pid_; }
  // For poll(2): hangs up when the spawner has ended. Do not read from it.
  int lifeline() const { return control_.get(); }

 private:
  using Steady = std::chrono::steady_clock;
  Spawner(std::vector<AgentSpec> agents, const SpawnerOptions& options, Fd control, pid_t pid)
      : agents_(std::move(agents)),
        options_(options),
        control_(std::move(control)),
        pid_(pid),
        asked_at_(Steady::now()) {}
  RunResult report_lost(const char* where) const;
  Status wait_for_result(int reply, Steady::time_point deadline) const;
  void wait_for_end() const;

  std::vector<AgentSpec> agents_;
  SpawnerOptions options_;
  Fd control_;
  pid_t pid_;
  mutable std::atomic<bool> dead_{false};
  Fd asked_;                     // receives the answer to beat()
  Steady::time_point asked_at_;  // of the last request
};

}  // namespace twinloft::lmtpd
