#include "twinloft/mailbench/load.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "twinloft/base/random.h"
#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/corpus.h"
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

// The live line: the last second that all workers have ended.
class LiveLine {
 public:
  LiveLine(const Schedule& schedule, const Series& series) : schedule_(schedule), series_(series) {}

  void show(Instant now) {
    Duration since = now - schedule_.start();
    auto second = static_cast<std::size_t>(since / std::chrono::seconds(1));
    // A worker adds a second with its first message after it.
    if (second < 2 || second == shown_) return;
    shown_ = second;
    Second s = series_.at(second - 2);
    const char* part = now < schedule_.window_start() ? "warm-up"
                       : now < schedule_.window_end() ? ""
                                                      : "ending";
    std::string line = fmt::format("\r{:5} s  {:>9}/min  p50 {:.1f} ms  p99 {:.1f} ms  {} failed  {}\x1b[K",
                                   second - 1, s.acknowledged * 60, static_cast<double>(s.p50_ns) / 1e6,
                                   static_cast<double>(s.p99_ns) / 1e6, s.failed, part);
    (void)write_all(STDERR_FILENO, as_bytes(line));
  }

 private:
  const Schedule& schedule_;
  const Series& series_;
  std::size_t shown_ = 0;
};

TlsSettings tls_settings(const LoadOptions& options) {
  TlsSettings out = *options.starttls;
  if (out.name.empty()) out.name = Endpoint::host_of(options.server);
  return out;
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

void GeneratorStats::merge(const GeneratorStats& other) {
  cpu_ns += other.cpu_ns;
  cpu_attempts += other.cpu_attempts;
  if (other.busiest > busiest) {
    busiest = other.busiest;
    waited = other.waited;
  }
  lag_ns.merge(other.lag_ns);
  late_ns.merge(other.late_ns);
  without_client += other.without_client;
}

void LoadStats::merge(const LoadStats& other) {
  latency.merge(other.latency);
  service.merge(other.service);
  generator.merge(other.generator);
  for (std::size_t i = 0; i < phases.size(); ++i) phases[i].merge(other.phases[i]);
  acknowledged += other.acknowledged;
  messages += other.messages;
  bytes += other.bytes;
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
  eight_bit_refused = eight_bit_refused || other.eight_bit_refused;
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
  std::optional<Corpus> corpus;
  if (!options.messages_from.empty()) {
    TL_TRY_ASSIGN(corpus, Corpus::load(options.messages_from, !options.bdat));
  }
  std::optional<TlsContext> tls;
  if (options.starttls) {
    TL_TRY_ASSIGN(tls, TlsContext::make(tls_settings(options)));
  }
  LoadResult result;
  if (corpus) result.corpus = corpus->summary();
  result.run = options.run;
  result.account = options.account;
  TextBlock block(options.seed, !options.bdat);
  OsClock clock;
  WallTime started = clock.wall();
  std::optional<AccountWriter> account;
  if (!options.account.empty()) {
    auto writer = AccountWriter::create(options.account, result.run, started);
    if (!writer) return fail(Errc::denied, "{}", writer.error().message);
    account.emplace(std::move(*writer));
  }
  MessageFactory::Settings message_settings{.run = result.run,
                                            .from = options.from,
                                            .seed = options.seed,
                                            .recipients_per_message = options.recipients_per_message,
                                            .size = options.size,
                                            .date = started,
                                            .zipf = options.zipf,
                                            .dot_stuffed = !options.bdat,
                                            .corpus = corpus ? &*corpus : nullptr};
  Schedule schedule(options.schedule, clock.now());
  SignalGuard guard(schedule);
  Series series;
  Worker::Context context{options,
                          endpoint,
                          tls ? &*tls : nullptr,
                          clock,
                          schedule,
                          account ? &*account : nullptr,
                          message_settings,
                          users,
                          block,
                          series};
  std::size_t thread_count = std::min<std::size_t>(options.threads, options.clients);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0, first = 0; i < thread_count; ++i) {  // the first threads get the remaining clients
    std::size_t clients = options.clients / thread_count + (i < options.clients % thread_count);
    workers.push_back(std::make_unique<Worker>(context, first, clients));
    first += clients;
  }
  LiveLine live(schedule, series);
  auto on_tick = [&](const LoadStats&) {
    if (options.progress) live.show(clock.now());
  };
  Status ran = run_workers(workers, on_tick);
  if (options.progress) (void)write_all(STDERR_FILENO, as_bytes("\n"));

  for (const auto& worker : workers) result.stats.merge(worker->stats());
  result.seconds = series.all();
  bool connected = result.stats.connected();
  if (ran && !connected)
    ran = fail(Errc::unavailable, "{}: the server took no connection{}", options.server,
               result.stats.errors.empty() ? "" : ": " + result.stats.errors.begin()->first);
  if (account && !ran && result.stats.attempts == 0) TL_TRY(account->discard());
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
