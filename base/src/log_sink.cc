#include "log_sink.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>

#include "twinloft/base/log.h"

namespace twinloft {

namespace {

constexpr std::size_t piece_max = 4096;  // PIPE_BUF: a pipe takes all of it or nothing
constexpr std::size_t thread_stack_bytes = 256 * 1024;
constexpr auto leave_time = std::chrono::seconds(2);
constexpr int settle_pauses = 400;
constexpr timespec settle_pause{0, 5'000'000};

enum class Mode { direct, never_wait, thread };

// Never destroyed: a thread that is stuck in write(2) outlives main().
struct Sink {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> queue;  // guarded by mutex, as the members up to `ended`
  std::size_t queue_bytes = 0;
  unsigned long missing = 0;
  bool ending = false, ended = false;
  std::atomic<std::string (*)(unsigned long)> notice{nullptr};  // before the first line that may be missing
  std::atomic<Mode> mode{Mode::direct};
  std::atomic<std::size_t> unwritten{0};  // lines: queued, or being written
  pthread_t thread{};
  std::terminate_handler terminate_before = nullptr;
};

Sink& sink() {
  static Sink* made = new Sink;
  return *made;
}

bool would_wait(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

bool is_writable(int wait_ms) {
  pollfd p{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&p, 1, wait_ms) == 1;
}

bool is_pipe(int fd) {
  struct stat is{};
  return ::fstat(fd, &is) == 0 && S_ISFIFO(is.st_mode);
}

// As write(2) to standard error, but with EAGAIN in place of a wait for the reader. The descriptor is shared
// with other processes, so it cannot be made non-blocking. A wait is still possible if another process fills
// the room after poll(2): for other files than sockets and pipes, and on kernels whose pipes lack RWF_NOWAIT.
ssize_t write_now(std::string_view piece) {
  ssize_t n = ::send(STDERR_FILENO, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0 || errno != ENOTSOCK) return n;
  if (is_pipe(STDERR_FILENO)) {
    const iovec part{const_cast<char*>(piece.data()), piece.size()};
    n = ::pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT);
    if (n >= 0 || would_wait(errno) || errno == EINTR) return n;
  }
  if (!is_writable(0)) return errno = EAGAIN, -1;
  return ::write(STDERR_FILENO, piece.data(), piece.size());
}

// Waits for the reader without limit. Only for the writer's thread, and for programs that are not services.
void write_and_wait(std::string_view text) {
  while (!text.empty()) {
    ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n > 0)
      text.remove_prefix(static_cast<std::size_t>(n));
    else if (n < 0 && would_wait(errno))
      (void)is_writable(-1);
    else if (n == 0 || errno != EINTR)
      return;  // a log that cannot be written must not stop the service
  }
}

void push(Sink& s, std::string line) {
  s.queue_bytes += line.size();
  s.queue.push_back(std::move(line));
  ++s.unwritten;
}

// The first line of the queue, with the lines behind it that a pipe takes in the same write. lines: their
// number.
std::string take_lines(Sink& s, std::size_t& lines) {
  std::string text = std::move(s.queue.front());
  s.queue.pop_front();
  for (lines = 1; !s.queue.empty() && text.size() + s.queue.front().size() <= piece_max; ++lines) {
    text += s.queue.front();
    s.queue.pop_front();
  }
  s.queue_bytes -= text.size();
  return text;
}

void* write_lines(void*) {
  (void)::prctl(PR_SET_NAME, "log");
  Sink& s = sink();
  std::unique_lock lock(s.mutex);
  for (;;) {
    s.changed.wait(lock, [&] { return s.ending || !s.queue.empty(); });
    if (s.queue.empty()) break;
    std::size_t lines = 0;
    std::string text = take_lines(s, lines);
    if (s.queue.empty() && s.missing > 0) push(s, s.notice.load()(std::exchange(s.missing, 0)));
    lock.unlock();
    write_and_wait(text);
    lock.lock();
    s.unwritten -= lines;
  }
  s.ended = true;
  s.changed.notify_all();
  return nullptr;
}

void queue_line(Sink& s, std::string line) {
  {
    std::lock_guard lock(s.mutex);
    if (s.queue_bytes + line.size() > log_queue_bytes_max) {
      ++s.missing;
      return;
    }
    if (s.missing > 0) push(s, s.notice.load()(std::exchange(s.missing, 0)));
    push(s, std::move(line));
  }
  s.changed.notify_one();
}

void write_or_drop(Sink& s, const std::string& line) {
  std::lock_guard lock(s.mutex);
  if (s.missing > 0 && write_within(s.notice.load()(s.missing), 0)) s.missing = 0;
  if (s.missing > 0 || !write_within(line, 0)) ++s.missing;
}

void before_fork() {
  sink().mutex.lock();
}
void after_fork() {
  sink().mutex.unlock();
}
// The parent writes the queued lines. The condition variable counts the parent's thread as a waiter, so a new
// one replaces it. Otherwise, a notification might reach no thread of this process.
void after_fork_in_child() {
  Sink& s = sink();
  new (&s.changed) std::condition_variable;
  if (s.mode == Mode::thread) s.mode = Mode::never_wait;
  s.queue.clear();
  s.queue_bytes = 0;
  s.missing = 0;
  s.unwritten = 0;
  s.mutex.unlock();
}

[[noreturn]] void terminate_settled() {
  log_settle();
  if (auto before = sink().terminate_before) before();
  std::abort();
}

}  // namespace

void sink_line(std::string line, std::string (*notice)(unsigned long missing)) {
  Sink& s = sink();
  if (s.mode == Mode::direct) return write_and_wait(line);
  if (s.notice == nullptr) s.notice = notice;
  if (s.mode == Mode::thread)
    queue_line(s, std::move(line));
  else
    write_or_drop(s, line);
}

bool write_within(std::string_view text, int wait_ms) {
  while (!text.empty()) {
    const ssize_t n = write_now(text.substr(0, piece_max));
    if (n >= 0)
      text.remove_prefix(static_cast<std::size_t>(n));
    else if (would_wait(errno) && (wait_ms == 0 || !is_writable(wait_ms)))
      return false;
    else if (!would_wait(errno) && errno != EINTR)
      return true;  // another attempt would fail too
  }
  return true;
}

void log_never_wait() {
  Sink& s = sink();
  if (s.mode == Mode::direct) s.mode = Mode::never_wait;
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(before_fork, after_fork, after_fork_in_child); });
}

LogWriter::LogWriter() {
  log_never_wait();
  Sink& s = sink();
  s.ending = s.ended = false;
  // The new thread blocks all signals, since other threads wait for them.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, thread_stack_bytes);
  if (::pthread_create(&s.thread, &attributes, write_lines, nullptr) == 0) s.mode = Mode::thread;
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (auto before_this = std::set_terminate(terminate_settled); before_this != terminate_settled)
    s.terminate_before = before_this;
}

LogWriter::~LogWriter() {
  Sink& s = sink();
  if (s.mode != Mode::thread) return;  // the thread could not be created, or this is a forked process
  std::unique_lock lock(s.mutex);
  s.ending = true;
  s.changed.notify_all();
  bool ended = s.changed.wait_for(lock, leave_time, [&] { return s.ended; });
  s.mode = Mode::never_wait;
  lock.unlock();
  if (ended)
    ::pthread_join(s.thread, nullptr);
  else
    ::pthread_detach(s.thread);
}

void log_settle() {
  Sink& s = sink();
  if (s.mode != Mode::thread || ::pthread_equal(::pthread_self(), s.thread)) return;
  for (int i = 0; i < settle_pauses && s.unwritten > 0; ++i) ::nanosleep(&settle_pause, nullptr);
}

}  // namespace twinloft
