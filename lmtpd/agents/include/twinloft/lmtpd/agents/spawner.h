// The spawner: the one process of lmtpd that holds privilege, and the network process's handle on it.
//
// start() forks it, before any thread and any socket exists. It knows the configured agents, and does one
// thing only: "run agent N with these values as this user". A request is one SOCK_SEQPACKET message with
// bounded, checked fields, and two descriptors: the message (the agent's stdin) and the end of a socket pair
// that the result goes to. Any number of runs are under way at once. A run is over when no process of it is
// left: the whole process group is killed also after a normal end, and what left the group (setsid) as well,
// known by TWINLOFT_RUN in its environment. What has changed its environment is killed once no run is under
// way.
//
// Spawner::run is called on worker threads and blocks until the run is over, at most for the agent's time
// limit and what its end may take. Spawner::beat finds a spawner that hangs.
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
  std::string home;  // working directory where it can be entered, else /
  std::vector<std::pair<std::string, std::string>> values;  // macro name -> value
};

struct RunResult {
  enum class End : std::uint32_t {
    exited,       // `value`: exit code
    signalled,    // `value`: signal
    timed_out,    // its group was killed
    not_started,  // `value`: errno of the failing step; `output` names it
    refused,      // the request or a value was refused; `output` says why
    busy,         // as many runs as allowed are under way
    unkillable,   // killed, and still there: what it will do is unknown
    lost,         // the spawner is gone, or hangs
  };
  End end = End::lost;
  int value = 0;
  std::string output;  // the end of stdout and stderr, raw bytes
};

struct SpawnerOptions {
  std::uint32_t runs_max = 512;  // at once; fewer where the limit of open files does not allow for so many
  RunAsRules run_as{};
  std::chrono::milliseconds kill_wait{30'000};    // for a killed process to be gone
  std::chrono::milliseconds answer_wait{30'000};  // for the spawner itself: beyond, it hangs
};

class Spawner {
 public:
  // Forks; call it while the process has one thread. Errors: a bad spec (named), no process or no
  // socket available.
  static Result<std::unique_ptr<Spawner>> start(std::vector<AgentSpec> agents, SpawnerOptions options = {});
  // Ends the spawner and every run; waits for it, save where it hangs.
  ~Spawner();
  // Has the spawner end every run and itself, and does not wait. Every run ends as `lost` from then on.
  void give_up() const;
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // `message`: a descriptor positioned at 0. Thread-safe.
  RunResult run(const RunRequest& request, int message) const;

  const std::vector<AgentSpec>& agents() const { return agents_; }
  std::optional<std::uint32_t> find(std::string_view name) const;
  std::uint32_t runs_max() const { return options_.runs_max; }  // beyond: RunResult::End::busy
  // Asks it for a sign of life now and then, and never blocks: to be called about once a second, by one
  // thread. Error: it has given none for answer_wait, and every run ends as `lost` from then on.
  Status beat();
  // False once it has died, or hangs: every run ends as `lost` from then on.
  bool alive() const { return !dead_.load(std::memory_order_relaxed); }
  pid_t pid() const { return pid_; }
  // For poll(2): hangs up when it has died. Nothing is to be read from it.
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
  Fd asked_;                     // where the answer to beat()'s question comes
  Steady::time_point asked_at_;  // the last time
};

}  // namespace twinloft::lmtpd
