// Runs a program until it ends, with an argument vector and without a shell. Input, output and time are
// bounded. For a thread that may block.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft {

struct ProgramResult {
  int exit_code = 0;
  std::string out, err;
};

class ProgramRunner {
 public:
  static constexpr std::size_t out_bytes_max = 16u << 20;
  static constexpr std::size_t err_bytes_max = 16u << 10;  // more is dropped

  // environment: more variables for the programs, each as NAME=VALUE.
  explicit ProgramRunner(const Clock& clock, std::vector<std::string> environment = {});
  ~ProgramRunner();
  ProgramRunner(const ProgramRunner&) = delete;
  ProgramRunner& operator=(const ProgramRunner&) = delete;

  // Runs a program; one at a time. argv[0] is the program's path. The program gets standard input, output
  // and error and no other descriptor, default actions for all signals, its own process group, and an
  // environment of PATH, LC_ALL=C and what the constructor names, so that the environment of this process
  // does not change its output. At its end, its group is killed. Errors: Errc::not_found (no such program),
  // Errc::timeout, Errc::exhausted (too much output), Errc::unavailable (ended by a signal, or cancelled).
  Result<ProgramResult> run(const std::vector<std::string>& argv, const std::string& input, Instant deadline);
  void cancel();  // from any thread; for good

 private:
  struct Child;
  Status wait(Child& child, Instant deadline);
  void stop(Child& child);
  void reap();

  const Clock& clock_;
  std::vector<std::string> environment_;
  Fd wakeup_;
  std::atomic<bool> cancelled_ = false;
  std::vector<pid_t> unreaped_;  // killed, and blocked in the kernel: reaped by a later run
};

}  // namespace twinloft
