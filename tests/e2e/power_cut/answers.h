// Answers the kernel's requests after a delay, out of order, so that several are in flight as on a real disk.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <queue>
#include <thread>

#include "event_log.h"
#include "fuse_api.h"
#include "twinloft/base/random.h"

namespace twinloft::power {

// The log, shared by the thread that takes requests and the thread that answers them.
class SharedLog {
 public:
  explicit SharedLog(EventWriter writer) : writer_(std::move(writer)) {}
  void append(Event event, ByteSpan bytes = {});
  void flush();

 private:
  std::mutex mutex_;
  EventWriter writer_;
};

class Answers {
 public:
  Answers(SharedLog& log, std::chrono::microseconds delay, std::uint64_t seed);
  ~Answers();  // answers the remaining requests at once
  Answers(const Answers&) = delete;

  // `event` is logged right before the answer. A consequence of the answer comes later in the log. `written`
  // is the result of a write. Other requests get success.
  void add(fuse_req_t request, const Event& event, std::size_t written);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Answer {
    Time due;
    fuse_req_t request;
    Event event;
    std::size_t written;
    bool operator<(const Answer& other) const { return due > other.due; }
  };
  void run();

  SharedLog& log_;
  std::chrono::microseconds delay_;
  SeededRandom random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::priority_queue<Answer> waiting_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace twinloft::power
