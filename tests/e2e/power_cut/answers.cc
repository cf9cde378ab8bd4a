#include "answers.h"

#include "twinloft/base/check.h"
#include "twinloft/base/clock.h"

namespace twinloft::power {

void SharedLog::append(Event event, ByteSpan bytes) {
  static const OsClock clock;
  std::scoped_lock lock(mutex_);
  event.at_ns = clock.now().ns;
  Status written = writer_.append(event, bytes);
  TL_CHECK_MSG(written.has_value(), "the log of a disk cannot be written: no space?");
}

void SharedLog::flush() {
  std::scoped_lock lock(mutex_);
  Status written = writer_.flush();
  TL_CHECK_MSG(written.has_value(), "the log of a disk cannot be written: no space?");
}

Answers::Answers(SharedLog& log, std::chrono::microseconds delay, std::uint64_t seed)
    : log_(log), delay_(delay), random_(seed), thread_([this] { run(); }) {}

Answers::~Answers() {
  {
    std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Answers::add(fuse_req_t request, const Event& event, std::size_t written) {
  std::scoped_lock lock(mutex_);
  auto twice = static_cast<std::uint64_t>(2 * delay_.count() + 1);
  Time due = std::chrono::steady_clock::now() + std::chrono::microseconds(random_.below(twice));
  waiting_.push({due, request, event, written});
  changed_.notify_one();
}

void Answers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (waiting_.empty()) {
      if (ending_) return;
      changed_.wait(lock);
      continue;
    }
    if (!ending_ && waiting_.top().due > std::chrono::steady_clock::now()) {
      changed_.wait_until(lock, waiting_.top().due);
      continue;
    }
    Answer a = waiting_.top();
    waiting_.pop();
    lock.unlock();
    log_.append(a.event);
    if (a.event.kind == EventKind::done && a.written > 0)
      fuse_reply_write(a.request, a.written);
    else
      fuse_reply_err(a.request, 0);
    lock.lock();
  }
}

}  // namespace twinloft::power
