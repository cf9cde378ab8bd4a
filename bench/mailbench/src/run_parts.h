// What runs of every kind share: what is sent, the end by a signal, and the live line.
#pragma once

#include <signal.h>

#include <cstddef>
#include <optional>

#include "twinloft/mailbench/corpus.h"
#include "twinloft/mailbench/load.h"
#include "twinloft/mailbench/message.h"

namespace twinloft::mailbench {

// What messages are made of.
struct Materials {
  Users users;
  std::optional<Corpus> corpus;
  TextBlock block;
  bool dot_stuffed;

  // Errors: Errc::invalid, or Errc::not_found: a file cannot be read, or has no message.
  static Result<Materials> make(const LoadOptions& options, bool dot_stuffed);
  MessageFactory::Settings settings(const LoadOptions& options, WallTime started) const;
};

// SIGINT, SIGTERM and SIGHUP (the terminal is gone) end the run cleanly. A second SIGINT or SIGTERM ends the
// process. If mailbench was started with SIGHUP ignored (nohup), SIGHUP stays ignored.
class SignalGuard {
 public:
  explicit SignalGuard(Schedule& schedule);
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  bool interrupted() const;

 private:
  struct sigaction old_int_{}, old_term_{}, old_hangup_{};
};

// The line on standard error: the last second that all workers have ended.
class LiveLine {
 public:
  LiveLine(const Schedule& schedule, const Series& series) : schedule_(schedule), series_(series) {}
  void show(Instant now);

 private:
  const Schedule& schedule_;
  const Series& series_;
  std::size_t shown_ = 0;
};

}  // namespace twinloft::mailbench
