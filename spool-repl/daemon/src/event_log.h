// The events of a served volume: in memory at once, and in the file later, by a separate thread. No other
// thread waits for it, since block I/O may depend on the adding thread, and the file may be on a slow disk.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/daemon/events.h"

namespace twinloft::repl::daemon {

class EventLog {
 public:
  // Reads the file. If the file cannot be written, one warning is logged, and the volume is served.
  EventLog(std::string path, std::string volume, const Clock& clock);
  ~EventLog();  // writes all added events first

  // Adds an event with a new number and the time. once: for repeated events, such as a connection that is
  // tried every few seconds; a text is added once in `repeat_after`. False: it was added before.
  bool add(Event event, bool once = false);

  std::uint64_t last_number() const { return next_ - 1; }
  // The events after `since`, a line each, after a line with the newest number.
  std::string list(std::uint64_t since, bool json) const;
  // The answer to a request: "SINCE" or "SINCE json".
  Result<std::string> answer(std::string_view what) const;

 private:
  static constexpr Duration repeat_after = std::chrono::minutes(5);
  static constexpr std::size_t unwritten_max = 1000, said_max = 256;

  bool was_said(const std::string& words, Instant now);
  void write_all_lines();
  Status append(const std::string& lines);
  Status open_file();
  Status rotate();

  const std::string path_, directory_, volume_;
  const Clock& clock_;
  std::deque<Event> kept_;  // oldest first
  std::uint64_t next_ = 1;
  std::unordered_map<std::string, Instant> said_;

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::string> unwritten_;  // guarded by mutex_, as the next two members
  std::uint64_t lost_ = 0;             // lines that were dropped, since the file was too slow
  bool ending_ = false;
  Fd file_;  // of the thread
  std::uint64_t file_bytes_ = 0;
  bool complained_ = false;
  std::jthread thread_;
};

}  // namespace twinloft::repl::daemon
