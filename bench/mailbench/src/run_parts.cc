#include "run_parts.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "twinloft/base/fd.h"

namespace twinloft::mailbench {

namespace {

std::atomic<Schedule*> g_interruptible{nullptr};
std::atomic<bool> g_interrupted{false};

void on_signal(int) {
  g_interrupted.store(true, std::memory_order_relaxed);
  if (Schedule* schedule = g_interruptible.load(std::memory_order_relaxed)) schedule->stop();
}

Result<Users> load_users(const LoadOptions& options) {
  if (options.users_file.empty())
    return Users::from_format(options.user_format, options.first_user, options.users);
  auto read = read_file(options.users_file, 1u << 30);
  if (!read) return fail(Errc::not_found, "{}", read.error().message);
  const std::string& text = *read;
  std::vector<std::string> addresses;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with('#')) addresses.emplace_back(line);
  }
  return Users::from_list(std::move(addresses));
}

}  // namespace

Result<Materials> Materials::make(const LoadOptions& options, bool dot_stuffed) {
  TL_TRY_ASSIGN(Users users, load_users(options));
  if (options.recipients_per_message > users.size())
    return fail(Errc::invalid, "{} recipients per message, but only {} users", options.recipients_per_message,
                users.size());
  std::optional<Corpus> corpus;
  if (!options.messages_from.empty()) {
    auto loaded = Corpus::load(options.messages_from, dot_stuffed);
    if (!loaded) return fail(Errc::not_found, "{}", loaded.error().message);
    corpus = std::move(*loaded);
  }
  return Materials{std::move(users), std::move(corpus), TextBlock(options.seed, dot_stuffed), dot_stuffed};
}

MessageFactory::Settings Materials::settings(const LoadOptions& options, WallTime started) const {
  return {.run = options.run,
          .from = options.from,
          .seed = options.seed,
          .recipients_per_message = options.recipients_per_message,
          .size = options.size,
          .date = started,
          .zipf = options.zipf,
          .dot_stuffed = dot_stuffed,
          .corpus = corpus ? &*corpus : nullptr};
}

SignalGuard::SignalGuard(Schedule& schedule) {
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

SignalGuard::~SignalGuard() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
  ::sigaction(SIGHUP, &old_hangup_, nullptr);
  g_interruptible.store(nullptr);
}

bool SignalGuard::interrupted() const {
  return g_interrupted.load();
}

void LiveLine::show(Instant now) {
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

}  // namespace twinloft::mailbench
