// The states of the server processes, and the next actions: a state machine without I/O and clock.
//
//   starting ──ready()──▶ serving ──a newer one is ready──▶ draining ──ended()──▶
//
// One server process accepts connections. A reload starts another server process with the present
// configuration. When the new process is ready, the old process drains. If the new process does not become
// ready, the old process continues. A server process that ends by itself is replaced. The supervisor holds
// the sockets, so no client is refused meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/base/clock.h"

namespace twinloft::lmtpd {

using ServerId = std::uint64_t;  // unique

enum class ServerCommand { drain, stop, abort };

// The end of a process.
struct Ending {
  int exit_code = 0;
  int signal = 0;  // the signal that killed it; 0: none
  bool good() const { return exit_code == 0 && signal == 0; }
};

// The owner's actions, in this order.
struct Orders {
  struct Start {
    ServerId id;
    bool reread;  // read the configuration again. Otherwise use that of the last process that became ready
  };
  struct Tell {
    ServerId id;
    ServerCommand command;
  };
  std::vector<std::string> errors;  // for the log
  std::optional<ServerId> adopt;    // this process's configuration becomes the current one
  std::vector<Tell> tell;
  std::vector<ServerId> kill;  // not ready in time, silent, or has not executed a command
  std::optional<Start> start;  // answer with started() or ended()
  std::optional<int> exit;     // the supervisor is done: its exit code
};

class Supervisor {
 public:
  // lost: what the end of a server process costs, for the log.
  explicit Supervisor(std::string lost = "clients of deliveries in flight got no 250")
      : lost_(std::move(lost)) {}

  // Before a process is replaced. Doubled for each process that has served for less than restart_pause_max.
  static constexpr Duration restart_pause = std::chrono::seconds(1);
  static constexpr Duration restart_pause_max = std::chrono::seconds(60);
  // From an abort, or from the loss of the control channel, until the process is killed.
  static constexpr Duration patience = std::chrono::seconds(10);
  // For the start of a further process; less than systemd's 90 s for a reload. The service manager limits the
  // start of the first process.
  static constexpr Duration start_patience = std::chrono::seconds(60);

  // A process without a sign of life for so long is killed. It sends one every five seconds.
  static constexpr Duration silence_max = std::chrono::seconds(60);

  Orders begin();
  Orders reload(Instant now);  // SIGHUP
  Orders stop(Instant now);    // SIGTERM, SIGINT; the second one aborts
  Orders ready(ServerId id, Instant now);
  Orders ended(ServerId id, Ending ending, Instant now);
  void needs_replacement(ServerId id, Instant now);  // the process serves, but a helper has failed
  void deaf(ServerId id, Instant now);   // the process has closed its control channel, and should end now
  void heard(ServerId id, Instant now);  // the process has given a sign of life
  void leaves(ServerId id);              // the process is about to end, without further signs of life
  Orders tick(Instant now);
  std::optional<Instant> next_tick() const;
  std::optional<Instant> next_look() const;  // the time of another tick(), which checks the signs of life
  bool stopping() const { return stops_ > 0; }
  bool starting() const { return any(Phase::starting); }

 private:
  enum class Phase { starting, serving, draining };
  struct Server {
    Phase phase = Phase::starting;
    bool crippled = false;
    std::optional<Instant> kill_at = {};
    std::optional<Instant> heard = {};  // the last sign of life; nothing if none is expected
  };
  static constexpr Duration look_pause = std::chrono::seconds(10);  // between two checks of the signs of life

  bool any(Phase phase) const;
  void note_silence(Instant now, Orders& out);
  void give_up_on(Server& server, Instant now);
  void restart_later(Instant now);
  Orders start(bool reread, std::optional<Instant> kill_at);
  Orders start_failed(Ending ending, Instant now);
  Orders tell_all(ServerCommand command);

  const std::string lost_;
  std::map<ServerId, Server> servers_;
  ServerId last_ = 0;
  bool reload_again_ = false;  // requested while a process was starting
  bool ever_served_ = false;
  bool all_good_ = true;  // the endings since stop()
  unsigned stops_ = 0;
  std::optional<Instant> restart_at_;
  std::optional<Instant> ready_at_;  // of the last process that became ready
  std::optional<Instant> ticked_;
  Duration pause_ = restart_pause / 2;
};

}  // namespace twinloft::lmtpd
