// The events of one volume that runs: in memory at once, in the file a moment later, by a thread of its own.
// Nothing waits for that thread: block I/O may depend on the thread that adds, and the file may lie on a slow
// disk.
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
  // Reads what is there. A file that cannot be written gets one warning, and the volume is served all the
  // same.
  EventLog(std::string path, std::string volume, const Clock& clock);
  ~EventLog();  // after what was added is in the file

  // Takes number and time. What is said again and again (a connection tried every few seconds) is taken once
  // in `repeat_after`: give `once` for those. False: it was said before.
  bool add(Event event, bool once = false);

  std::uint64_t last_number() const { return next_ - 1; }
  // Events after `since`, a line each, behind a line with the last number there is.
  std::string list(std::uint64_t since, bool json) const;
  // What a caller asks for: "SINCE" or "SINCE json".
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
  std::deque<std::string> unwritten_;  // guarded by mutex_, as the next two are
  std::uint64_t lost_ = 0;             // lines that the file could not take fast enough
  bool ending_ = false;
  Fd file_;  // of the thread
  std::uint64_t file_bytes_ = 0;
  bool complained_ = false;
  std::jthread thread_;
};

}  // namespace twinloft::repl::daemon
