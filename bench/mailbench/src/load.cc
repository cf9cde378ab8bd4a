#include "twinloft/mailbench/load.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "twinloft/base/random.h"
#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/endpoint.h"
#include "twinloft/mailbench/message.h"
#include "twinloft/mailbench/worker.h"

namespace twinloft::mailbench {

namespace {

std::atomic<Schedule*> g_interruptible{nullptr};
std::atomic<bool> g_interrupted{false};

void on_signal(int) {
  g_interrupted.store(true, std::memory_order_relaxed);
  if (Schedule* schedule = g_interruptible.load(std::memory_order_relaxed)) schedule->stop();
}

// SIGINT, SIGTERM and SIGHUP (the terminal is gone) end the run cleanly. A second SIGINT or SIGTERM ends the
// process. If mailbench was started with SIGHUP ignored (nohup), SIGHUP stays ignored.
class SignalGuard {
 public:
  explicit SignalGuard(Schedule& schedule) {
    g_interrupted.store(false);
    g_interruptible.store(&schedule);
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
    action.sa_flags = 0;  // a terminal and its shell may both send the signal
    ::sigaction(SIGHUP, nullptr, &old_hangup_);
    if (old_hangup_.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  }
  ~SignalGuard() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
    ::sigaction(SIGHUP, &old_hangup_, nullptr);
    g_interruptible.store(nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  struct sigaction old_int_{}, old_term_{}, old_hangup_{};
};

Result<Users> load_users(const LoadOptions& options) {
  if (options.users_file.empty())
    return Users::from_format(options.user_format, options.first_user, options.users);
  TL_TRY_ASSIGN(std::string text, read_file(options.users_file, 1u << 30));
  std::vector<std::string> addresses;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with('#')) addresses.emplace_back(line);
  }
  return Users::from_list(std::move(addresses));
}

void show_progress(const LoadStats& stats, const Schedule& schedule, Instant now, unsigned threads) {
  double seconds = std::chrono::duration<double>(now - schedule.start()).count();
  std::uint64_t done = stats.outcomes[0] * threads;
  std::string line = fmt::format("\r{:6.1f} s  {} acknowledged  {:.0f}/min  ", seconds, done,
                                 seconds > 0 ? static_cast<double>(done) / seconds * 60 : 0);
  (void)write_all(STDERR_FILENO, as_bytes(line));
}

// Runs all workers, the first on this thread. The first error of any of them is the run's.
Status run_workers(std::vector<std::unique_ptr<Worker>>& workers,
                   const std::function<void(const LoadStats&)>& on_tick) {
  std::vector<Status> statuses(workers.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < workers.size(); ++i)
    threads.emplace_back([&, i] { statuses[i] = workers[i]->run([](const LoadStats&) {}); });
  statuses[0] = workers[0]->run(on_tick);
  for (std::thread& thread : threads) thread.join();
  for (Status& status : statuses) TL_TRY(status);
  return {};
}

}  // namespace

std::string draw_run_id() {
  OsRandom random;
  return fmt::format("{:012x}", random.next() & 0xffffffffffff);
}

void LoadStats::merge(const LoadStats& other) {
  latency_ns.merge(other.latency_ns);
  connect_ns.merge(other.connect_ns);
  acknowledged += other.acknowledged;
  messages += other.messages;
  bytes += other.bytes;
  cpu_ns += other.cpu_ns;
  cpu_attempts += other.cpu_attempts;
  window = std::max(window, other.window);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    outcomes[i] += other.outcomes[i];
    last_outcomes[i] += other.last_outcomes[i];
  }
  for (auto [code, count] : other.codes) codes[code] += count;
  for (const auto& [why, count] : other.errors) errors[why] += count;
  attempts += other.attempts;
  retries += other.retries;
  connections += other.connections;
  failed_connections += other.failed_connections;
  pipelining = pipelining || other.pipelining;
  auto& ticks = acknowledged_per_tick;
  ticks.resize(std::max(ticks.size(), other.acknowledged_per_tick.size()));
  for (std::size_t i = 0; i < other.acknowledged_per_tick.size(); ++i)
    ticks[i] += other.acknowledged_per_tick[i];
}

Duration longest_gap(const LoadStats& stats) {
  std::size_t longest = 0, run = 0;
  bool begun = false;
  for (std::uint32_t count : stats.acknowledged_per_tick) {
    if (count > 0) {
      if (begun) longest = std::max(longest, run);
      begun = true;
      run = 0;
    } else {
      ++run;
    }
  }
  return LoadStats::kTick * static_cast<std::int64_t>(longest);
}

Result<LoadResult> run_load(LoadOptions options) {
  TL_TRY_ASSIGN(Endpoint endpoint, Endpoint::parse(options.server));
  TL_TRY_ASSIGN(Users users, load_users(options));
  if (options.recipients_per_message > users.size())
    return fail(Errc::invalid, "{} recipients per message, but only {} users", options.recipients_per_message,
                users.size());
  LoadResult result;
  result.run = options.run;
  result.account = options.account;
  std::optional<AccountWriter> account;
  if (!options.account.empty()) {
    auto writer = AccountWriter::create(options.account, result.run);
    if (!writer) return fail(Errc::denied, "{}", writer.error().message);
    account.emplace(std::move(*writer));
  }
  OsClock clock;
  TextBlock block(options.seed);
  MessageFactory::Settings message_settings{
      result.run, options.from, options.seed, options.recipients_per_message, options.size, clock.wall()};
  Schedule schedule(options.schedule, clock.now());
  SignalGuard guard(schedule);
  Worker::Context context{options,          endpoint, clock, schedule, account ? &*account : nullptr,
                          message_settings, users,    block};
  std::size_t thread_count = std::min<std::size_t>(options.threads, options.clients);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < thread_count; ++i)  // the first threads get the remaining clients
    workers.push_back(std::make_unique<Worker>(
        context, options.clients / thread_count + (i < options.clients % thread_count)));
  auto on_tick = [&](const LoadStats& stats) {
    if (options.progress) show_progress(stats, schedule, clock.now(), static_cast<unsigned>(thread_count));
  };
  Status ran = run_workers(workers, on_tick);
  if (options.progress) (void)write_all(STDERR_FILENO, as_bytes("\n"));

  for (const auto& worker : workers) result.stats.merge(worker->stats());
  bool connected = result.stats.connect_ns.count() > 0;
  if (ran && !connected)
    ran = fail(Errc::unavailable, "{}: the server took no connection{}", options.server,
               result.stats.errors.empty() ? "" : ": " + result.stats.errors.begin()->first);
  if (account && !connected) TL_TRY(account->discard());
  TL_TRY(ran);
  if (account) TL_TRY(account->close());
  Instant end = clock.now();
  result.interrupted = g_interrupted.load();
  // A complete run was measured for its whole duration, any other run until its last acknowledgement.
  if (end >= schedule.window_end()) result.stats.window = schedule.window_end() - schedule.window_start();
  result.messages_started = schedule.granted();
  result.behind = schedule.behind(end);
  return result;
}

}  // namespace twinloft::mailbench
