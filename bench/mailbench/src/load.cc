#include "twinloft/mailbench/load.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "run_parts.h"
#include "twinloft/base/random.h"
#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/corpus.h"
#include "twinloft/mailbench/endpoint.h"
#include "twinloft/mailbench/message.h"
#include "twinloft/mailbench/worker.h"

namespace twinloft::mailbench {

namespace {

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
  without_connection += other.without_connection;
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
  if (begun) longest = std::max(longest, run);
  return LoadStats::kTick * static_cast<std::int64_t>(longest);
}

// Without an event, a tick or a second has no entry: what is missing until the end was time without mail.
void cover_window(LoadResult& result, Duration until) {
  auto ticks = static_cast<std::size_t>(until / LoadStats::kTick);
  auto seconds = static_cast<std::size_t>(until / std::chrono::seconds(1));
  auto& counts = result.stats.acknowledged_per_tick;
  counts.resize(std::max(counts.size(), ticks));
  result.seconds.resize(std::max(result.seconds.size(), seconds));
}

Result<LoadResult> run_load(LoadOptions options) {
  TL_TRY_ASSIGN(Endpoint endpoint, Endpoint::parse(options.server));
  TL_TRY_ASSIGN(Materials materials, Materials::make(options, !options.bdat));
  std::optional<TlsContext> tls;
  if (options.starttls) {
    TL_TRY_ASSIGN(tls, TlsContext::make(tls_settings(options)));
  }
  LoadResult result;
  if (materials.corpus) result.corpus = materials.corpus->summary();
  result.run = options.run;
  result.account = options.account;
  OsClock clock;
  WallTime started = clock.wall();
  std::optional<AccountWriter> account;
  if (!options.account.empty()) {
    auto writer = AccountWriter::create(options.account, result.run, started);
    if (!writer) return fail(Errc::denied, "{}", writer.error().message);
    account.emplace(std::move(*writer));
  }
  Schedule schedule(options.schedule, clock.now());
  SignalGuard guard(schedule);
  Series series;
  RunState run;
  Worker::Context context{options,
                          endpoint,
                          tls ? &*tls : nullptr,
                          clock,
                          schedule,
                          account ? &*account : nullptr,
                          materials.settings(options, started),
                          materials.users,
                          materials.block,
                          series,
                          run};
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
  result.interrupted = guard.interrupted();
  // With a duration, or until a signal, the whole time was measured; otherwise until the last
  // acknowledgement.
  if (end >= schedule.window_end())
    result.stats.window = std::max(Duration(0), schedule.window_end() - schedule.window_start());
  cover_window(result, schedule.window_start() - schedule.start() + result.stats.window);
  result.users = materials.users.size();
  result.messages_started = schedule.granted();
  result.waiting = run.waiting;
  result.behind = schedule.behind(end);
  return result;
}

}  // namespace twinloft::mailbench
