#include "shards.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <deque>
#include <new>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"

namespace twinloft::repl::sim {

namespace {

constexpr Duration progress_every = std::chrono::seconds(10);
constexpr unsigned jobs_max = 256;

volatile sig_atomic_t stop_asked = 0;
void ask_to_stop(int) {
  stop_asked = 1;
}

// In memory that all processes share.
struct Board {
  std::atomic<std::uint64_t> next, done{0};
  std::atomic<std::uint64_t> lowest_failed{UINT64_MAX};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> running[jobs_max];  // the seed of each process
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct Worker {
  pid_t pid = 0;
  Fd report;
  std::string text;
  std::uint64_t seed = 0;  // the seed that was seen last, and since when
  Instant since;
  bool hung = false;
};

void put(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n <= 0) _exit(3);
    at += static_cast<std::size_t>(n);
  }
}

// A line for each mark: hits, blank, mark. A line for a violation: !seed, blank, text.
[[noreturn]] void work(Board& board, unsigned self, std::uint64_t end, int report) {
  signal(SIGINT, SIG_IGN);  // the parent decides when to stop
  signal(SIGTERM, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Coverage coverage;
  while (!board.stop) {
    std::uint64_t seed = board.next++;
    if (seed >= end || seed > board.lowest_failed) break;
    board.running[self] = seed;
    if (auto found = run_seed(seed, false, coverage)) {
      std::uint64_t lowest = board.lowest_failed;
      while (seed < lowest && !board.lowest_failed.compare_exchange_weak(lowest, seed)) {
      }
      put(report, fmt::format("!{} {}\n", seed, found->what));
    }
    board.done++;
  }
  for (const auto& [mark, hits] : coverage.marks) put(report, fmt::format("{} {}\n", hits, mark));
  _exit(0);
}

Worker start_worker(Board& board, unsigned self, std::uint64_t end) {
  int ends[2];
  TL_CHECK(pipe(ends) == 0);
  std::fflush(nullptr);
  pid_t pid = fork();
  TL_CHECK(pid >= 0);
  if (pid == 0) {
    ::close(ends[0]);
    work(board, self, end, ends[1]);
  }
  ::close(ends[1]);
  Worker w;
  w.pid = pid;
  w.report = Fd(ends[0]);
  return w;
}

std::uint64_t number_at(std::string_view line) {
  std::uint64_t n = 0;
  std::from_chars(line.data(), line.data() + line.size(), n);
  return n;
}

void take(ShardResult& result, Finding found) {
  if (!result.finding || found.seed < result.finding->seed) result.finding = std::move(found);
}

void read_report(const Worker& w, ShardResult& result) {
  std::string_view rest = w.text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    std::string text(line.substr(blank + 1));
    if (line[0] == '!')
      take(result, {number_at(line.substr(1)), std::move(text)});
    else
      result.coverage.marks[text] += number_at(line);
  }
}

// The seed of a process that ended without a report counts as failed.
void end_of(Worker& w, unsigned self, Board& board, ShardResult& result) {
  w.report.reset();
  int status = 0;
  waitpid(w.pid, &status, 0);
  read_report(w, result);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::uint64_t seed = board.running[self];
  if (seed < board.lowest_failed) board.lowest_failed = seed;
  take(result, {seed, w.hung                ? "does not end"
                      : WIFSIGNALED(status) ? fmt::format("stopped by signal {}", WTERMSIG(status))
                                            : fmt::format("exit {}", WEXITSTATUS(status))});
}

void read_some(Worker& w, unsigned self, Board& board, ShardResult& result) {
  char buffer[4096];
  ssize_t n = ::read(w.report.get(), buffer, sizeof buffer);
  if (n > 0)
    w.text.append(buffer, static_cast<std::size_t>(n));
  else if (n == 0)
    end_of(w, self, board, result);
}

void look_for_hung(Worker& w, unsigned self, Board& board, Instant now, Duration patience) {
  std::uint64_t seed = board.running[self];
  if (seed != w.seed) {
    w.seed = seed;
    w.since = now;
  } else if (now - w.since > patience && !w.hung) {
    w.hung = true;
    kill(w.pid, SIGKILL);
  }
}

void watch(std::vector<Worker>& workers, Board& board, const ShardOptions& options, ShardResult& result) {
  OsClock clock;
  Instant begin = clock.now(), shown = begin;
  for (Worker& w : workers) w.since = begin;
  for (;;) {
    std::vector<pollfd> fds;
    std::vector<unsigned> whose;
    for (unsigned i = 0; i < workers.size(); ++i)
      if (workers[i].report) fds.push_back({workers[i].report.get(), POLLIN, 0}), whose.push_back(i);
    if (fds.empty()) return;
    poll(fds.data(), fds.size(), 1000);
    if (stop_asked) board.stop = true;
    for (std::size_t i = 0; i < fds.size(); ++i)
      if (fds[i].revents) read_some(workers[whose[i]], whose[i], board, result);
    Instant now = clock.now();
    for (unsigned i = 0; i < workers.size(); ++i)
      if (workers[i].report) look_for_hung(workers[i], i, board, now, options.patience);
    if (!options.progress || now - shown < progress_every) continue;
    shown = now;
    std::uint64_t done = board.done;
    double seconds = std::chrono::duration<double>(now - begin).count();
    fmt::print(stderr, "{} seeds from {}, {:.0f} s, {:.1f} a second\n", done, options.first, seconds,
               static_cast<double>(done) / seconds);
  }
}

}  // namespace

std::optional<Finding> run_seed(std::uint64_t seed, bool trace, Coverage& coverage) {
  try {
    Cluster(seed, trace, coverage).run();
    return std::nullopt;
  } catch (const Violation& v) {
    return Finding{seed, v.what};
  }
}

ShardResult run_shards(const ShardOptions& options) {
  void* shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TL_CHECK(shared != MAP_FAILED);
  Board& board = *new (shared) Board;
  board.next = options.first;
  std::uint64_t end = options.count > UINT64_MAX - options.first ? UINT64_MAX : options.first + options.count;
  struct sigaction action = {}, old_int = {}, old_term = {};
  action.sa_handler = ask_to_stop;
  sigaction(SIGINT, &action, &old_int);
  sigaction(SIGTERM, &action, &old_term);
  std::vector<Worker> workers;
  for (unsigned i = 0; i < std::min(options.jobs, jobs_max); ++i)
    workers.push_back(start_worker(board, i, end));
  ShardResult result;
  watch(workers, board, options, result);
  result.seeds = board.done;
  sigaction(SIGINT, &old_int, nullptr);
  sigaction(SIGTERM, &old_term, nullptr);
  munmap(shared, sizeof(Board));
  return result;
}

std::string trace_tail(std::uint64_t seed, std::size_t lines) {
  int ends[2];
  TL_CHECK(pipe(ends) == 0);
  std::fflush(nullptr);
  pid_t pid = fork();
  TL_CHECK(pid >= 0);
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
    alarm(60);  // limits the trace of a seed that does not end
    Coverage coverage;
    (void)run_seed(seed, true, coverage);
    std::fflush(nullptr);
    _exit(0);
  }
  ::close(ends[1]);
  std::deque<std::string> tail;
  std::FILE* in = fdopen(ends[0], "r");
  char line[4096];
  while (std::fgets(line, sizeof line, in)) {
    tail.emplace_back(line);
    if (tail.size() > lines) tail.pop_front();
  }
  std::fclose(in);
  waitpid(pid, nullptr, 0);
  std::string text;
  for (const std::string& l : tail) text += l;
  return text;
}

}  // namespace twinloft::repl::sim
