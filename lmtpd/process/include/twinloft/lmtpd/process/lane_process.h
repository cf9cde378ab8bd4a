// A process that answers requests of its parent. It has the connections, passwords and external libraries
// that the server process must not have, because the server process reads from the network.
//
// Each request in flight has a lane: a pair of sockets (SOCK_SEQPACKET), and a thread at the other end. An
// answer may have a file descriptor (SCM_RIGHTS, unix(7)).
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
  Fd fd = {};                    // usually none
  bool lost_descriptor = false;  // the answer had a descriptor, but this process has too many open files
};

struct LaneConfig {
  const char* process_name;                       // in ps(1), at most 15 bytes
  const char* what;                               // "the process that asks the user database", in messages
  std::size_t lanes = 1;                          // simultaneous requests of a group; further requests wait
  std::size_t groups = 1;                         // a blocked group takes no lane of another group
  std::chrono::milliseconds answer_wait{30'000};  // for a sign of life; afterwards the process counts as hung
  std::chrono::milliseconds lanes_wait{120'000};  // for an answer while every lane of a group is late
  std::chrono::milliseconds start_wait{50'000};   // until the process is ready
};

class LaneProcess {
 public:
  // Called on the lanes' threads, several at a time.
  using Serve = std::function<LaneAnswer(ByteSpan request)>;
  using Open = std::function<Result<Serve>()>;

  // Forks. Call it while the process has a single thread. The new process calls `become`, which may read
  // secrets before it gives up its privileges, and then `open`. start() returns the errors of both.
  static Result<std::unique_ptr<LaneProcess>> start(const LaneConfig& config,
                                                    const std::function<Status()>& become, const Open& open);
  ~LaneProcess();
  LaneProcess(const LaneProcess&) = delete;
  LaneProcess& operator=(const LaneProcess&) = delete;

  // Sends a request, and blocks for its answer, at most for `time`. Thread-safe. Errors: Errc::unavailable
  // (the process has ended), Errc::timeout (no free lane of the group, or no answer).
  Result<LaneAnswer> ask(const std::vector<std::byte>& request,
                         std::optional<std::chrono::milliseconds> time = std::nullopt, std::size_t group = 0);
  // Requests a sign of life from time to time, without blocking. Call it about once a second, in one thread.
  // Errors: no sign of life for answer_wait, or no answer of a group for lanes_wait, although each of its
  // lanes has a request.
  Status beat();
  pid_t pid() const { return pid_; }
  int lifeline() const { return alive_.get(); }  // poll(2) reports POLLHUP once the process has ended

 private:
  using Steady = std::chrono::steady_clock;
  explicit LaneProcess(const LaneConfig& config)
      : what_(config.what),
        answer_wait_(config.answer_wait),
        lanes_wait_(config.lanes_wait),
        groups_(std::max<std::size_t>(config.groups, 1)),
        asked_at_(Steady::now()) {}
  struct Group {
    std::vector<Fd> lanes;  // free lanes
    std::vector<Fd> late;   // lanes whose request has timed out; free again after the answer
    std::size_t left = 0;   // free, late or in use
    Steady::time_point answered = Steady::now();  // the time of the last answer in time
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
  Fd beat_;                      // the lane of beat()
  bool asked_ = false;           // a request is in flight on beat_
  Steady::time_point asked_at_;  // of the last request
};

}  // namespace twinloft::lmtpd
