// Runs a program with an argument vector and no shell: input, output and time are bounded. For a thread that
// may block.
#pragma once

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
  static constexpr std::size_t err_bytes_max = 16u << 10;  // more is thrown away

  explicit ProgramRunner(const Clock& clock);
  // `argv[0]` is the program's path. Errors: Errc::not_found where there is none, Errc::timeout (its process
  // group was killed), Errc::exhausted (too much output), Errc::unavailable (ended by a signal, or
  // cancelled).
  Result<ProgramResult> run(const std::vector<std::string>& argv, const std::string& input, Instant deadline);
  void cancel();  // from any thread; final

 private:
  struct Child;
  Status wait(Child& child, Instant deadline);

  const Clock& clock_;
  Fd wakeup_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace twinloft
