// Which serving processes there are, and what is to be done with them: a state machine without I/O and clock.
//
//   starting ──ready()──▶ serving ──a newer one is ready──▶ draining ──ended()──▶
//
// One process serves. A reload starts another one beside it, with the configuration as it is then. When the
// new process is ready, the old process drains. Where it does not become ready, the old one goes on as if
// nothing had been asked. A serving process that ends by itself is replaced. The sockets are the
// supervisor's, so nobody is refused meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"

namespace twinloft::lmtpd {

using ServerId = std::uint64_t;  // never used twice

enum class ServerCommand : char {
  drain = 'd',
  stop = 't',
  abort = 'a',
};

// How a process has ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;  // that has killed it; 0: none
  bool good() const { return exit_code == 0 && signal == 0; }
};

// What the owner is to do, in this order.
struct Orders {
  struct Start {
    ServerId id;
    bool reread;  // the configuration; else as it was when a process was last ready with it
  };
  struct Tell {
    ServerId id;
    ServerCommand command;
  };
  std::vector<std::string> errors;  // for the log
  std::optional<ServerId> adopt;    // what it was started with is the configuration from now on
  std::vector<Tell> tell;
  std::vector<ServerId> kill;  // it has not begun to serve, or does not do what it was told
  std::optional<Start> start;  // answer with started() or ended()
  std::optional<int> exit;     // the supervisor is done: its exit code
};

class Supervisor {
 public:
  static constexpr Duration restart_pause = std::chrono::seconds(1);  // doubled for each one that ends soon
                                                                      // after the last
  static constexpr Duration restart_pause_max = std::chrono::seconds(60);  // and who has served for so long
                                                                           // has not
  static constexpr Duration patience = std::chrono::seconds(10);  // with one that was told to abort, or that
                                                                  // cannot be told anything any more
  // With a start beside or after another process; less than the 90 s of systemd for a reload. A first one has
  // as long as the service manager gives it.
  static constexpr Duration start_patience = std::chrono::seconds(60);

  // For so long a process that serves may give no sign of life. It gives one every five seconds.
  static constexpr Duration silence_max = std::chrono::seconds(60);

  Orders begin();
  Orders reload(Instant now);  // SIGHUP
  Orders stop(Instant now);    // SIGTERM, SIGINT; the second one aborts
  Orders ready(ServerId id, Instant now);
  Orders ended(ServerId id, Ending ending, Instant now);
  void needs_replacement(ServerId id, Instant now);  // it serves, and can not do all that it should
  void deaf(ServerId id, Instant now);               // it has let go of its supervisor, and should end now
  void heard(ServerId id, Instant now);              // it has given a sign of life
  void leaves(ServerId id);                          // it is about to end, and gives none any more
  Orders tick(Instant now);
  std::optional<Instant> next_tick() const;
  std::optional<Instant> next_look() const;  // tick() then too, to look for signs of life
  bool stopping() const { return stops_ > 0; }
  bool starting() const { return any(Phase::starting); }

 private:
  enum class Phase { starting, serving, draining };
  struct Server {
    Phase phase = Phase::starting;
    bool crippled = false;
    std::optional<Instant> kill_at = {};
    std::optional<Instant> heard = {};  // the last sign of life; none where none is expected
  };
  static constexpr Duration look_pause = std::chrono::seconds(10);  // between two looks for signs of life

  bool any(Phase phase) const;
  void note_silence(Instant now, Orders& out);
  void give_up_on(Server& server, Instant now);
  void restart_later(Instant now);
  Orders start(bool reread, std::optional<Instant> kill_at);
  Orders start_failed(Ending ending, Instant now);
  Orders tell_all(ServerCommand command);

  std::map<ServerId, Server> servers_;
  ServerId last_ = 0;
  bool reload_again_ = false;  // asked for while a process was starting
  bool ever_served_ = false;
  bool all_good_ = true;  // the endings since stop()
  unsigned stops_ = 0;
  std::optional<Instant> restart_at_;
  std::optional<Instant> ready_at_;  // the last one that was
  std::optional<Instant> ticked_;
  Duration pause_ = restart_pause / 2;
};

}  // namespace twinloft::lmtpd
