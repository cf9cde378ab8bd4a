#include "event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "twinloft/base/log.h"
#include "twinloft/spool-repl/io/direct_file.h"

namespace twinloft::repl::daemon {

EventLog::EventLog(std::string path, std::string volume, const Clock& clock)
    : path_(std::move(path)),
      directory_(path_.substr(0, path_.rfind('/') + 1)),
      volume_(std::move(volume)),
      clock_(clock) {
  std::vector<Event> old = load_events(path_);
  kept_.assign(old.begin(), old.end());
  if (!kept_.empty()) next_ = kept_.back().number + 1;
  thread_ = std::jthread([this] { write_all_lines(); });
}

EventLog::~EventLog() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  added_.notify_one();
}

bool EventLog::add(Event e, bool once) {
  Instant now = clock_.now();
  if (e.text.size() > event_text_bytes_max) e.text.resize(event_text_bytes_max);
  // Some texts come from peers, so they are made safe for terminals and for readers of JSON.
  for (char& c : e.text)
    if (c < 0x20 || c == 0x7f) c = '?';
  if (once && was_said(e.kind + ' ' + e.text, now)) return false;
  e.number = next_++;
  e.time = clock_.wall();
  std::string line = event_json(volume_, e);
  kept_.push_back(std::move(e));
  if (kept_.size() > events_kept_max) kept_.pop_front();
  {
    std::lock_guard lock(mutex_);
    unwritten_.push_back(std::move(line));
    if (unwritten_.size() > unwritten_max) {
      unwritten_.pop_front();
      ++lost_;
    }
  }
  added_.notify_one();
  return true;
}

bool EventLog::was_said(const std::string& words, Instant now) {
  // Old texts are removed only when the table is full, which limits its memory and its cost.
  if (said_.size() >= said_max)
    std::erase_if(said_, [&](const auto& s) { return now - s.second > repeat_after; });
  if (said_.size() >= said_max) said_.clear();
  auto [at, fresh] = said_.emplace(words, now);
  if (!fresh && now - at->second <= repeat_after) return true;
  at->second = now;
  return false;
}

std::string EventLog::list(std::uint64_t since, bool json) const {
  std::string out = fmt::format("{}\n", last_number());
  auto first = std::find_if(kept_.begin(), kept_.end(), [&](const Event& e) { return e.number > since; });
  for (auto e = first; e != kept_.end(); ++e) out += json ? event_json(volume_, *e) : event_text(*e);
  return out;
}

Result<std::string> EventLog::answer(std::string_view what) const {
  std::uint64_t since = 0;
  auto [end, error] = std::from_chars(what.data(), what.data() + what.size(), since);
  std::string_view rest(end, static_cast<std::size_t>(what.data() + what.size() - end));
  if (error != std::errc() || (!rest.empty() && rest != " json"))
    return fail(Errc::invalid, "events: not a number");
  return list(since, !rest.empty());
}

// The thread: writes all events that have gathered, in one write.
void EventLog::write_all_lines() {
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [&] { return ending_ || !unwritten_.empty(); });
    if (unwritten_.empty()) return;
    std::string lines;
    for (const std::string& line : std::exchange(unwritten_, {})) lines += line;
    std::uint64_t lost = std::exchange(lost_, 0);
    lock.unlock();
    if (lost > 0)
      log_warning("volume {}: {} events are missing in {}: its disk was too slow", volume_, lost, path_);
    Status written = append(lines);
    if (!written && !complained_)
      log_warning("volume {}: events are not kept: {}", volume_, written.error().message);
    complained_ = !written;
    lock.lock();
  }
}

Status EventLog::append(const std::string& lines) {
  if (!file_) TL_TRY(open_file());
  if (file_bytes_ > 0 && file_bytes_ + lines.size() > event_file_bytes_max) {
    TL_TRY(rotate());
    TL_TRY(open_file());
  }
  Status written = write_all(file_.get(), as_bytes(lines));
  if (written) written = io::make_durable(file_.get(), directory_);
  if (!written) {
    file_.reset();  // opened again next time
    return fail(written.error().code, "{}: {}", path_, written.error().message);
  }
  file_bytes_ += lines.size();
  return {};
}

Status EventLog::open_file() {
  Fd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat st{};
  if (!file || ::fstat(file.get(), &st) < 0) return fail_errno(errno, "{}", path_);
  // Ends an incomplete line of a crash, so that the next line can be read.
  char last = '\n';
  if (st.st_size > 0 && ::pread(file.get(), &last, 1, st.st_size - 1) == 1 && last != '\n') {
    TL_TRY(write_all(file.get(), as_bytes(std::string_view("\n"))));
    ++st.st_size;
  }
  file_ = std::move(file);
  file_bytes_ = static_cast<std::uint64_t>(st.st_size);
  return {};
}

Status EventLog::rotate() {
  file_.reset();
  file_bytes_ = 0;
  if (::rename(path_.c_str(), (path_ + ".1").c_str()) < 0)
    return fail_errno(errno, "{}: cannot be renamed", path_);
  return {};
}

}  // namespace twinloft::repl::daemon
