#include "twinloft/mailbench/report.h"

#include <iterator>

#include "twinloft/mailbench/json.h"
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

void json_latency(JsonWriter& json, std::string_view key, const Histogram& h) {
  json.open_object(key);
  json.number("count", h.count());
  json.number("mean", h.mean() / 1e6);
  json.number("min", ms(h.min()));
  for (double p : kPercents) json.number(fmt::format("p{}", p), ms(h.percentile(p)));
  json.number("max", ms(h.max()));
  json.close();
}

void json_settings(JsonWriter& json, const LoadOptions& o) {
  json.open_object("settings");
  json.text("server", o.server);
  json.number("clients", o.clients);
  json.number("threads", o.threads);
  json.number("warmup_s", seconds(o.schedule.warmup));
  if (o.schedule.rate) json.number("rate_per_s", *o.schedule.rate);
  json.text("size", o.size.text());
  json.number("size_mean_bytes", o.size.mean());
  json.number("recipients_per_message", o.recipients_per_message);
  json.number("messages_per_connection", o.messages_per_connection);
  json.number("attempts_max", o.attempts);
  json.number("seed", o.seed);
  json.close();
}

void json_outcomes(JsonWriter& json, std::string_view key, const std::array<std::uint64_t, 5>& counts) {
  json.open_object(key);
  for (Outcome o : kOutcomes) json.number(to_string(o), counts[static_cast<std::size_t>(o)]);
  json.close();
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
  JsonWriter json;
  json.open_object();
  json.text("kind", "mailbench-load");
  json.number("version", 1);
  json.text("run", result.run);
  json.boolean("interrupted", result.interrupted);
  json_settings(json, options);
  json.number("window_s", seconds(s.window));
  json.number("messages_per_minute", messages_per_minute(s));
  json.number("acknowledged", s.acknowledged);
  json.number("messages", s.messages);
  json.number("bytes_per_s", ratio(static_cast<double>(s.bytes), seconds(s.window)));
  json_latency(json, "latency_ms", s.latency_ns);
  json_latency(json, "connect_ms", s.connect_ns);
  json_outcomes(json, "recipients", s.last_outcomes);
  json_outcomes(json, "attempted_recipients", s.outcomes);
  json.open_object("replies");
  for (auto [code, count] : s.codes) json.number(code == 0 ? "none" : std::to_string(code), count);
  json.close();
  json.open_object("lost_connections");
  for (const auto& [why, count] : s.errors) json.number(why, count);
  json.close();
  json.number("attempts", s.attempts);
  json.number("retries", s.retries);
  json.number("connections", s.connections);
  json.number("failed_connections", s.failed_connections);
  json.boolean("pipelining", s.pipelining);
  json.number("messages_started", result.messages_started);
  json.number("behind", result.behind);
  json.number("longest_gap_s", seconds(longest_gap(s)));
  json.number("generator_cpu_us_per_message", cpu_us_per_message(s));
  json.number("generator_cpu_share", cpu_share(s));
  json.text("account", result.account);
  json.number("tick_s", seconds(LoadStats::kTick));
  json.open_array("acknowledged_per_tick");
  for (std::uint32_t count : s.acknowledged_per_tick) json.number("", count);
  json.close();
  json.close();
  return json.take();
}

}  // namespace twinloft::mailbench
