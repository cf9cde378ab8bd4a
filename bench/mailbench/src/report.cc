#include "twinloft/mailbench/report.h"

#include <iterator>

#include "twinloft/base/json.h"
#include "twinloft/mailbench/session.h"

namespace twinloft::mailbench {

namespace {

constexpr double kPercents[] = {50, 90, 99, 99.9};
constexpr Outcome kOutcomes[] = {Outcome::acknowledged, Outcome::deferred, Outcome::refused, Outcome::unknown,
                                 Outcome::unsent};

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
double ms(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e6;
}
double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}
double cpu_us_per_message(const LoadStats& s) {
  return ratio(static_cast<double>(s.cpu_ns) / 1e3, static_cast<double>(s.cpu_attempts));
}
// Of one processor.
double cpu_share(const LoadStats& s) {
  return ratio(static_cast<double>(s.cpu_ns) / 1e9, seconds(s.window));
}

std::string latency_line(std::string_view what, const Histogram& h) {
  std::string line = fmt::format("{:<15}", what);
  for (double p : kPercents) line += fmt::format("p{} {:.2f} ms  ", p, ms(h.percentile(p)));
  return line + fmt::format("max {:.2f} ms\n", ms(h.max()));
}

json::object latency_json(const Histogram& h) {
  json::object out{{"count", h.count()}, {"mean", h.mean() / 1e6}, {"min", ms(h.min())}};
  for (double p : kPercents) out[fmt::format("p{}", p)] = ms(h.percentile(p));
  out["max"] = ms(h.max());
  return out;
}

json::object settings_json(const LoadOptions& o) {
  json::object out{{"server", json_text(o.server)},
                   {"clients", o.clients},
                   {"threads", o.threads},
                   {"warmup_s", seconds(o.schedule.warmup)}};
  if (o.schedule.rate) out["rate_per_s"] = *o.schedule.rate;
  out["size"] = json_text(o.size.text());
  out["size_mean_bytes"] = o.size.mean();
  out["recipients_per_message"] = o.recipients_per_message;
  out["messages_per_connection"] = o.messages_per_connection;
  out["attempts_max"] = o.attempts;
  out["seed"] = o.seed;
  return out;
}

json::object outcomes_json(const std::array<std::uint64_t, 5>& counts) {
  json::object out;
  for (Outcome o : kOutcomes) out[to_string(o)] = counts[static_cast<std::size_t>(o)];
  return out;
}

json::object replies_json(const LoadStats& s) {
  json::object out;
  for (auto [code, count] : s.codes) out[code == 0 ? "none" : std::to_string(code)] = count;
  return out;
}

json::object lost_connections_json(const LoadStats& s) {
  json::object out;
  for (const auto& [why, count] : s.errors) out[json_text(why)] = count;
  return out;
}

std::string outcome_lines(const LoadStats& s) {
  std::string text = fmt::format("{:<15}", "recipients");
  for (Outcome o : kOutcomes)
    if (auto count = s.last_outcomes[static_cast<std::size_t>(o)]; count > 0 || o == Outcome::acknowledged)
      text += fmt::format("{} {}  ", count, to_string(o));
  text += fmt::format("\n{:<15}", "replies");
  for (auto [code, count] : s.codes)
    text += code == 0 ? fmt::format("none: {}  ", count) : fmt::format("{}: {}  ", code, count);
  text += "\n";
  for (const auto& [why, count] : s.errors)
    text += fmt::format("{:<15}{} x {}\n", "lost connection", count, why);
  return text;
}

}  // namespace

double messages_per_minute(const LoadStats& stats) {
  return ratio(static_cast<double>(stats.acknowledged) * 60, seconds(stats.window));
}

std::string report_text(const LoadOptions& options, const LoadResult& result) {
  const LoadStats& s = result.stats;
  auto out = fmt::format("mailbench load, run {}{}\n", result.run,
                         result.interrupted ? " (interrupted)" : "");
  auto at = std::back_inserter(out);
  fmt::format_to(at, "{:<15}{}, {} clients, {}, size {} (mean {:.0f} bytes), {} recipient{} a message\n",
                 "to", options.server, options.clients,
                 options.messages_per_connection == 0
                     ? "connections reused"
                     : fmt::format("{} messages a connection", options.messages_per_connection),
                 options.size.text(), options.size.mean(), options.recipients_per_message,
                 options.recipients_per_message == 1 ? "" : "s");
  fmt::format_to(at, "{:<15}{:.2f} s after {:.2f} s of warm-up\n", "measured", seconds(s.window),
                 seconds(options.schedule.warmup));
  fmt::format_to(at, "{:<15}{:.0f} messages per minute ({} recipients acknowledged, {:.2f} MiB/s)\n",
                 "throughput", messages_per_minute(s), s.acknowledged,
                 ratio(static_cast<double>(s.bytes) / 1048576, seconds(s.window)));
  out += latency_line("latency", s.latency_ns);
  out += latency_line("connect+LHLO", s.connect_ns);
  out += outcome_lines(s);
  if (options.schedule.rate)
    fmt::format_to(at, "{:<15}{:.1f} messages a second wanted, {} due and not sent at the end\n", "open loop",
                   *options.schedule.rate, result.behind);
  fmt::format_to(at, "{:<15}{:.1f} s\n", "longest gap", seconds(longest_gap(s)));
  fmt::format_to(at, "{:<15}{:.1f} us of CPU a message, {:.1f} % of one processor\n", "generator",
                 cpu_us_per_message(s), cpu_share(s) * 100);
  if (!result.account.empty()) fmt::format_to(at, "{:<15}{}\n", "account", result.account);
  return out;
}

std::string report_json(const LoadOptions& options, const LoadResult& result) {
  const LoadStats& s = result.stats;
  json::object root{
      {"kind", "mailbench-load"},
      {"version", 1},
      {"run", json_text(result.run)},
      {"interrupted", result.interrupted},
      {"settings", settings_json(options)},
      {"window_s", seconds(s.window)},
      {"messages_per_minute", messages_per_minute(s)},
      {"acknowledged", s.acknowledged},
      {"messages", s.messages},
      {"bytes_per_s", ratio(static_cast<double>(s.bytes), seconds(s.window))},
      {"latency_ms", latency_json(s.latency_ns)},
      {"connect_ms", latency_json(s.connect_ns)},
      {"recipients", outcomes_json(s.last_outcomes)},
      {"attempted_recipients", outcomes_json(s.outcomes)},
      {"replies", replies_json(s)},
      {"lost_connections", lost_connections_json(s)},
      {"attempts", s.attempts},
      {"retries", s.retries},
      {"connections", s.connections},
      {"failed_connections", s.failed_connections},
      {"pipelining", s.pipelining},
      {"messages_started", result.messages_started},
      {"behind", result.behind},
      {"longest_gap_s", seconds(longest_gap(s))},
      {"generator_cpu_us_per_message", cpu_us_per_message(s)},
      {"generator_cpu_share", cpu_share(s)},
      {"account", json_text(result.account)},
      {"tick_s", seconds(LoadStats::kTick)},
      {"acknowledged_per_tick", json::array(s.acknowledged_per_tick.begin(), s.acknowledged_per_tick.end())}};
  return indented_json(root);
}

}  // namespace twinloft::mailbench
