// A process that answers requests for the one that has forked it: for what needs connections, passwords or
// somebody else's libraries, which the process that reads from the network is not to have.
//
// Each request under way has a lane: a pair of sockets (SOCK_SEQPACKET), and a thread at the other end. An
// answer may bring a file descriptor (SCM_RIGHTS, unix(7)).
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

inline constexpr std::size_t lane_packet_bytes_max = 64 * 1024;

struct LaneAnswer {
  std::vector<std::byte> packet;
  Fd fd = {};                    // none, mostly
  bool lost_descriptor = false;  // one came along, and this process has no number left for it
};

struct LaneConfig {
  const char* process_name;                       // as ps(1) shows it, at most 15 bytes
  const char* what;                               // "the process that asks the user database", in messages
  std::size_t lanes = 1;                          // of each group: requests at once; more wait
  std::size_t groups = 1;                         // a blocked group takes no lane of another group
  std::chrono::milliseconds answer_wait{30'000};  // for a sign of life: beyond, the process hangs
  std::chrono::milliseconds lanes_wait{120'000};  // without any answer, while every lane of a group is late
  std::chrono::milliseconds start_wait{50'000};   // for it to be ready
};

class LaneProcess {
 public:
  // Called on the lanes' threads, several at once.
  using Serve = std::function<LaneAnswer(ByteSpan request)>;
  using Open = std::function<Result<Serve>()>;

  // Forks: to be called while there is one thread. In the new process `become` is called, which may read
  // secrets first and gives up what it does not need afterwards, then `open`. Errors of both are those of
  // start().
  static Result<std::unique_ptr<LaneProcess>> start(const LaneConfig& config,
                                                    const std::function<Status()>& become, const Open& open);
  ~LaneProcess();
  LaneProcess(const LaneProcess&) = delete;
  LaneProcess& operator=(const LaneProcess&) = delete;

  // Blocks, at most for that time. Thread-safe. Errc::unavailable: the process is gone. Errc::timeout: no
  // lane of that group is free, or no answer has come.
  Result<LaneAnswer> ask(const std::vector<std::byte>& request,
                         std::optional<std::chrono::milliseconds> time = std::nullopt, std::size_t group = 0);
  // Asks for a sign of life now and then, and never blocks: to be called about once a second, by one thread.
  // Error: none has come for answer_wait, or a group has had no answer for lanes_wait although every lane of
  // it was asked.
  Status beat();
  pid_t pid() const { return pid_; }
  int lifeline() const { return alive_.get(); }  // poll(2) says POLLHUP once the process is gone

 private:
  using Steady = std::chrono::steady_clock;
  explicit LaneProcess(const LaneConfig& config)
      : what_(config.what),
        answer_wait_(config.answer_wait),
        lanes_wait_(config.lanes_wait),
        groups_(std::max<std::size_t>(config.groups, 1)),
        asked_at_(Steady::now()) {}
  struct Group {
    std::vector<Fd> lanes;  // that are free
    std::vector<Fd> late;   // whose answers nobody waits for any more; free once they are there
    std::size_t left = 0;   // free, late or in use
    Steady::time_point answered = Steady::now();  // the last time that an answer was not late
  };
  using Deadline = std::optional<Steady::time_point>;
  Result<Fd> take_lane(Group& group, Deadline deadline);
  static void take_late_answers(Group& group);
  std::unexpected<Error> gone() const;
  struct Lane;

  Status check_lanes();

  const std::string what_;
  const std::chrono::milliseconds answer_wait_, lanes_wait_;
  pid_t pid_ = -1;
  std::mutex mutex_;
  std::condition_variable free_;
  std::vector<Group> groups_;
  Fd alive_;
  Fd beat_;                      // a lane of its own
  bool asked_ = false;           // on it
  Steady::time_point asked_at_;  // the last time
};

}  // namespace twinloft::lmtpd
