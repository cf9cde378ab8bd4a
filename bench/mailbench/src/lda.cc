#include "twinloft/mailbench/lda.h"

#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "cpu_time.h"
#include "run_parts.h"
#include "twinloft/base/program.h"
#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

constexpr int kNoExitCode = 256;
constexpr std::size_t kComplaintsMax = 64;

// What a mail server makes of an agent's exit code (sysexits.h).
Outcome outcome_of(int exit_code) {
  switch (exit_code) {
    case EX_OK:
      return Outcome::acknowledged;
    case EX_TEMPFAIL:
    case EX_OSERR:
    case EX_IOERR:
    case EX_UNAVAILABLE:
    case EX_CANTCREAT:
      return Outcome::deferred;
    default:
      return Outcome::refused;
  }
}

// The message as an agent gets it: lines end in LF.
std::string content_of(const Message& message) {
  std::string text = message.head;
  for (std::string_view piece : message.middle) text += piece;
  text += message.tail;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') text[kept++] = text[i];
  text.resize(kept);
  return text;
}

std::string_view last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::size_t lf = text.rfind('\n');
  return (lf == text.npos ? text : text.substr(lf + 1)).substr(0, 200);
}

class LdaRun {
 public:
  LdaRun(const LoadOptions& load, const LdaOptions& lda, const Materials& materials, WallTime started,
         AccountWriter* account)
      : load_(load),
        lda_(lda),
        materials_(materials),
        settings_(materials.settings(load, started)),
        account_(account),
        schedule_(load.schedule, clock_.now()),
        guard_(schedule_),
        live_(schedule_, series_) {}

  Result<LdaResult> run() {
    std::vector<std::thread> threads;
    for (std::size_t job = 1; job < load_.clients; ++job) threads.emplace_back([this, job] { work(job); });
    std::jthread watch([this](const std::stop_token& stop) { watch_run(stop); });
    work(0);
    for (std::thread& thread : threads) thread.join();
    watch.request_stop();
    watch.join();
    if (load_.progress) (void)write_all(STDERR_FILENO, as_bytes("\n"));
    if (failure_) return std::unexpected(*failure_);
    return finish();
  }

 private:
  // Takes the agents' CPU at the window's ends, shows the live line, and ends programs at the end of the
  // drain.
  void watch_run(const std::stop_token& stop) {
    std::optional<std::uint64_t> begin, end;
    Instant drain_end{INT64_MAX};
    while (!stop.stop_requested()) {
      Instant now = clock_.now();
      if (!begin && now >= schedule_.window_start()) begin = cpu_ns(RUSAGE_CHILDREN);
      if (schedule_.ended(now) && !end) {
        end = cpu_ns(RUSAGE_CHILDREN);
        waiting_ = schedule_.behind(now);
        drain_end = now + load_.schedule.drain;
      }
      if (now >= drain_end) cancel_programs();
      if (load_.progress) live_.show(now);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    agent_cpu_ns_ = end.value_or(cpu_ns(RUSAGE_CHILDREN)) - begin.value_or(0);
  }

  void work(std::size_t job) {
    MessageFactory factory(settings_, materials_.users, materials_.block);
    SeriesFeed feed(series_, schedule_.start());
    LoadStats stats;
    Message message;
    sleep_until(schedule_.client_start(job, load_.clients));
    // A message that was taken has an outcome. So nothing is taken once the drain is over.
    for (bool free = false; !is_cancelled();) {
      auto decision = schedule_.take(clock_.now());
      if (auto* later = std::get_if<Schedule::Later>(&decision)) {
        free = true;
        sleep_until(std::min(later->at, clock_.now() + LoadStats::kTick));
        continue;
      }
      auto* grant = std::get_if<Schedule::Grant>(&decision);
      if (grant == nullptr) break;
      take_lateness(grant->intended, std::exchange(free, false), stats);
      factory.make(grant->number, message);
      if (!deliver(message, grant->intended, stats, feed)) break;
    }
    feed.flush();
    std::scoped_lock lock(mutex_);
    stats_.merge(stats);
  }

  void take_lateness(Instant due, bool job_was_free, LoadStats& stats) const {
    if (!schedule_.open_loop() || !schedule_.in_window(due)) return;
    if (job_was_free)
      stats.generator.late_ns.record(static_cast<std::uint64_t>((clock_.now() - due).count()));
    else
      ++stats.generator.without_client;
  }

  // In slices: a signal may end the run meanwhile.
  void sleep_until(Instant at) {
    for (;;) {
      Instant now = clock_.now();
      if (now >= at || schedule_.over(now)) return;
      std::this_thread::sleep_for(std::min(at - now, LoadStats::kTick));
    }
  }

  bool is_cancelled() {
    std::scoped_lock lock(mutex_);
    return cancelled_;
  }
  void cancel_programs() {
    std::scoped_lock lock(mutex_);
    cancelled_ = true;
    for (ProgramRunner* runner : running_) runner->cancel();
  }

  // Runs the agent with the message. Errors with Error::sys: it could not be started.
  Result<ProgramResult> run_agent(const argv::Template::Arguments& arguments, const argv::Values& values,
                                  const Message& message) {
    ProgramRunner runner(
        clock_, {"HOME=" + values.at("home"), "USER=" + values.at("user"), "LOGNAME=" + values.at("user")});
    {
      std::scoped_lock lock(mutex_);
      if (cancelled_) runner.cancel();
      running_.insert(&runner);
    }
    auto ended = runner.run(arguments, content_of(message), clock_.now() + load_.timeout);
    std::scoped_lock lock(mutex_);
    running_.erase(&runner);
    return ended;
  }

  bool deliver(const Message& message, Instant due, LoadStats& stats, SeriesFeed& feed) {
    argv::Values values = values_for(message);
    auto arguments = lda_.command.expand(values);
    if (!arguments) {
      give_up({Errc::invalid, fmt::format("{}: {}", values["to"], arguments.error().message)});
      return false;
    }
    Instant began = clock_.now();
    auto ended = run_agent(*arguments, values, message);
    if (!ended && ended.error().sys != 0) {
      give_up({Errc::unavailable, ended.error().message});
      return false;
    }
    Outcome outcome = ended ? outcome_of(ended->exit_code) : Outcome::unknown;
    int code = ended ? ended->exit_code : kNoExitCode;
    if (outcome != Outcome::acknowledged)
      complain(ended ? std::string(last_line(ended->err)) : ended.error().message);
    return note(message, due, began, outcome, code, stats, feed);
  }

  bool note(const Message& message, Instant due, Instant began, Outcome outcome, int code, LoadStats& stats,
            SeriesFeed& feed) {
    Instant now = clock_.now();
    bool good = outcome == Outcome::acknowledged;
    ++stats.attempts;
    ++stats.codes[code];
    ++stats.outcomes[static_cast<std::size_t>(outcome)];
    ++stats.last_outcomes[static_cast<std::size_t>(outcome)];
    feed.count(now, good);
    if (good) feed.record(now - due);
    if (schedule_.in_window(schedule_.open_loop() ? due : now)) {
      ++stats.messages;
      stats.latency.record(now - due, good);
      if (schedule_.open_loop()) stats.service.record(now - began, good);
    }
    if (schedule_.in_window(now)) {
      stats.acknowledged += good;
      stats.bytes += good ? message.size : 0;
      stats.window = now - schedule_.window_start();
      std::scoped_lock lock(mutex_);
      ++agent_runs_;
    }
    if (account_ == nullptr) return true;
    std::string line;
    auto since_us = static_cast<std::uint64_t>((now - schedule_.start()).count() / 1000);
    append_line({message.id, message.recipients[0], message.digest, message.size, outcome,
                 code == kNoExitCode ? 0 : code, 1, since_us},
                line);
    Status written = account_->append(line);
    if (!written) give_up(written.error());
    return written.has_value();
  }

  argv::Values values_for(const Message& message) const {
    const std::string& to = message.recipients[0];
    std::size_t at = to.rfind('@');
    argv::Values values{{"from", load_.from},
                        {"to", to},
                        {"user", to},
                        {"original_to", to},
                        {"detail", ""},
                        {"domain", at == to.npos ? "" : to.substr(at + 1)},
                        {"id", message.id},
                        {"size", std::to_string(message.size)},
                        {"client", ""},
                        {"lhlo", load_.hello},
                        {"uid", std::to_string(::getuid())},
                        {"gid", std::to_string(::getgid())},
                        {"home", "/nonexistent"}};
    for (const auto& [name, format] : lda_.values) values[name] = address_by_format(format, to);
    return values;
  }

  void complain(std::string text) {
    if (text.empty()) text = "nothing on standard error";
    std::scoped_lock lock(mutex_);
    bool known = complaints_.contains(text) || complaints_.size() < kComplaintsMax;
    ++complaints_[known ? text : "other"];
  }

  void give_up(Error error) {
    schedule_.stop();
    std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::move(error);
  }

  LdaResult finish() {
    LdaResult out;
    Instant end = clock_.now();
    out.load.run = load_.run;
    out.load.account = load_.account;
    out.load.stats = std::move(stats_);
    if (end >= schedule_.window_end())
      out.load.stats.window = std::max(Duration(0), schedule_.window_end() - schedule_.window_start());
    out.load.seconds = series_.all();
    cover_window(out.load, schedule_.window_start() - schedule_.start() + out.load.stats.window);
    out.load.users = materials_.users.size();
    out.load.messages_started = schedule_.granted();
    out.load.waiting = waiting_;
    out.load.behind = schedule_.behind(end);
    out.load.interrupted = guard_.interrupted();
    if (materials_.corpus) out.load.corpus = materials_.corpus->summary();
    out.agent_cpu_ns = agent_cpu_ns_;
    out.agent_runs = agent_runs_;
    out.complaints = std::move(complaints_);
    return out;
  }

  const LoadOptions& load_;
  const LdaOptions& lda_;
  const Materials& materials_;
  MessageFactory::Settings settings_;
  AccountWriter* account_;
  OsClock clock_;
  Schedule schedule_;
  SignalGuard guard_;
  Series series_;
  LiveLine live_;
  std::mutex mutex_;  // of the rest
  LoadStats stats_;
  std::uint64_t waiting_ = 0;  // of the watching thread until it has ended
  std::uint64_t agent_cpu_ns_ = 0, agent_runs_ = 0;
  std::map<std::string, std::uint64_t> complaints_;
  std::optional<Error> failure_;
  std::set<ProgramRunner*> running_;
  bool cancelled_ = false;
};

}  // namespace

Result<LdaResult> run_lda(const LoadOptions& load, const LdaOptions& lda) {
  TL_TRY_ASSIGN(Materials materials, Materials::make(load, false));
  WallTime started = OsClock().wall();
  std::optional<AccountWriter> account;
  if (!load.account.empty()) {
    auto writer = AccountWriter::create(load.account, load.run, started);
    if (!writer) return fail(Errc::denied, "{}", writer.error().message);
    account.emplace(std::move(*writer));
  }
  Result<LdaResult> result = LdaRun(load, lda, materials, started, account ? &*account : nullptr).run();
  if (!account) return result;
  if (result)
    TL_TRY(account->close());
  else if (account->empty())
    TL_TRY(account->discard());
  return result;
}

}  // namespace twinloft::mailbench
