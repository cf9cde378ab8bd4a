#include "twinloft/mailbench/report.h"

#include <algorithm>
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
double cpu_us_per_message(const GeneratorStats& g) {
  return ratio(static_cast<double>(g.cpu_ns) / 1e3, static_cast<double>(g.cpu_attempts));
}
// Of one processor.
double cpu_share(const LoadStats& s) {
  return ratio(static_cast<double>(s.generator.cpu_ns) / 1e9, seconds(s.window));
}

}  // namespace

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

// Pairs of milliseconds and the number of values up to there, for plots.
json::array distribution_json(const Histogram& h) {
  json::array out;
  std::uint64_t seen = 0;
  for (auto [value, count] : h.filled()) {
    seen += count;
    out.push_back(json::array{ms(std::min(value, h.max())), seen});
  }
  return out;
}

std::string loop_line(const LoadOptions& o, const LoadResult& r) {
  if (!o.schedule.rate)
    return fmt::format(
        "{:<15}closed: each client waits for its replies. A slow server gets fewer messages, so latencies "
        "hide "
        "stalls; --rate shows them\n",
        "loop");
  return fmt::format(
      "{:<15}open: {:.1f} messages a second wanted, {} arrivals; {} waited at the end of the window, {} were "
      "never sent\n",
      "loop", *o.schedule.rate, o.schedule.arrivals == Arrivals::Kind::constant ? "constant" : "poisson",
      r.waiting, r.behind);
}

json::array seconds_json(const LoadResult& result) {
  json::array out;
  for (const Second& s : result.seconds)
    out.push_back(json::object{{"acknowledged", s.acknowledged},
                               {"failed", s.failed},
                               {"p50_ms", ms(s.p50_ns)},
                               {"p99_ms", ms(s.p99_ns)},
                               {"max_ms", ms(s.max_ns)}});
  return out;
}

namespace {

json::object phases_json(const LoadStats& s, Histogram Timing::* which) {
  json::object out;
  for (Phase phase : kPhases)
    if (const Histogram& h = s.phase(phase).*which; h.count() > 0) out[to_string(phase)] = latency_json(h);
  return out;
}

}  // namespace

json::object settings_json(const LoadOptions& o) {
  json::object out{{"server", json_text(o.server)},
                   {"protocol", o.protocol == Protocol::lmtp ? "lmtp" : "smtp"},
                   {"clients", o.clients},
                   {"threads", o.threads},
                   {"ramp_s", seconds(o.schedule.ramp)},
                   {"warmup_s", seconds(o.schedule.warmup)}};
  if (o.schedule.rate) {
    out["rate_per_s"] = *o.schedule.rate;
    out["arrivals"] = o.schedule.arrivals == Arrivals::Kind::constant ? "constant" : "poisson";
  }
  if (o.messages_from.empty()) {
    out["size"] = json_text(o.size.text());
    out["size_mean_bytes"] = o.size.mean();
  } else {
    out["messages_from"] = json_text(o.messages_from);
  }
  out["users"] = o.users;
  out["zipf"] = o.zipf;
  out["bdat"] = o.bdat;
  out["starttls"] = o.starttls.has_value();
  out["recipients_per_message"] = o.recipients_per_message;
  out["messages_per_connection"] = o.messages_per_connection;
  out["attempts_max"] = o.attempts;
  out["seed"] = o.seed;
  return out;
}

namespace {

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

// The phases with their 50th and 99th percentiles, and how many failed.
std::string phase_lines(const LoadStats& s) {
  std::string text;
  for (Phase phase : kPhases) {
    const Timing& t = s.phase(phase);
    if (t.good.count() + t.failed.count() == 0) continue;
    text += fmt::format("  {:<13}p50 {:.2f} ms  p99 {:.2f} ms", to_string(phase), ms(t.good.percentile(50)),
                        ms(t.good.percentile(99)));
    if (t.failed.count() > 0)
      text += fmt::format("  ({} failed: p50 {:.2f} ms)", t.failed.count(), ms(t.failed.percentile(50)));
    text += "\n";
  }
  return text;
}

constexpr double kBusyMax = 0.9, kWithoutClientMax = 0.01;
constexpr std::uint64_t kLateMax_ns = 5'000'000;

std::string server_line(const LoadOptions& o, const LoadResult& r) {
  std::string connections = o.messages_per_connection == 0
                                ? "connections reused"
                                : fmt::format("{} messages a connection", o.messages_per_connection);
  std::string size = r.corpus.empty()
                         ? fmt::format("size {} (mean {:.0f} bytes)", o.size.text(), o.size.mean())
                         : fmt::format("{}: {}", o.messages_from, r.corpus);
  return fmt::format("{:<15}{}{}, {} clients, {}, {}, {} recipient{} a message{}{}\n", "to", o.server,
                     o.protocol == Protocol::smtp ? " (SMTP)" : "", o.clients, connections, size,
                     o.recipients_per_message, o.recipients_per_message == 1 ? "" : "s",
                     o.starttls ? ", STARTTLS" : "", o.bdat ? ", BDAT" : "");
}

}  // namespace

std::vector<std::string> warnings(const LoadOptions& options, const LoadResult& result) {
  const GeneratorStats& g = result.stats.generator;
  std::vector<std::string> out;
  if (g.busiest >= kBusyMax)
    out.push_back(
        fmt::format("the generator may be the limit: a thread was busy {:.0f} % of the time ({:.0f} % of it "
                    "waiting for a "
                    "processor). Use more --threads, or a machine of its own",
                    g.busiest * 100, ratio(g.waited, g.busiest) * 100));
  if (g.late_ns.percentile(99) > kLateMax_ns)
    out.push_back(
        fmt::format("the generator sent late: p99 {:.1f} ms after a message was due, with a free client",
                    ms(g.late_ns.percentile(99))));
  if (result.behind > 0)
    out.push_back(
        fmt::format("{} messages were due and never sent: they are in no latency. The server is behind, or "
                    "--drain is too short",
                    result.behind));
  std::uint64_t sent = g.late_ns.count() + g.without_client + g.without_connection;
  if (static_cast<double>(g.without_client) > kWithoutClientMax * static_cast<double>(sent))
    out.push_back(
        fmt::format("{} of {} messages were due when all clients were busy. Latency includes their wait",
                    g.without_client, sent));
  if (static_cast<double>(g.without_connection) > kWithoutClientMax * static_cast<double>(sent))
    out.push_back(fmt::format("{} of {} messages were due when clients had no connection yet: use --warmup",
                              g.without_connection, sent));
  if (result.stats.eight_bit_refused)
    out.emplace_back("messages with 8-bit content went to a server that does not offer 8BITMIME");
  if (options.protocol == Protocol::smtp)
    out.emplace_back("a 250 over SMTP is no delivery: mailbench verify --wait waits for the mail to arrive");
  return out;
}

double messages_per_minute(const LoadStats& stats) {
  return ratio(static_cast<double>(stats.acknowledged) * 60, seconds(stats.window));
}

std::string report_text(const LoadOptions& options, const LoadResult& result) {
  const LoadStats& s = result.stats;
  auto out = fmt::format("mailbench load, run {}{}\n", result.run,
                         result.interrupted ? " (interrupted)" : "");
  auto at = std::back_inserter(out);
  out += server_line(options, result);
  fmt::format_to(at, "{:<15}{:.2f} s after {:.2f} s of warm-up\n", "measured", seconds(s.window),
                 seconds(options.schedule.ramp + options.schedule.warmup));
  out += loop_line(options, result);
  fmt::format_to(at, "{:<15}{:.0f} messages per minute ({} recipients acknowledged, {:.2f} MiB/s)\n",
                 "throughput", messages_per_minute(s), s.acknowledged,
                 ratio(static_cast<double>(s.bytes) / 1048576, seconds(s.window)));
  out += latency_line("latency", s.latency.good);
  if (options.schedule.rate) out += latency_line("from sending", s.service.good);
  if (s.latency.failed.count() > 0)
    out += latency_line(fmt::format("{} failed", s.latency.failed.count()), s.latency.failed);
  out += phase_lines(s);
  out += outcome_lines(s);
  fmt::format_to(at, "{:<15}{:.1f} s\n", "longest gap", seconds(longest_gap(s)));
  fmt::format_to(
      at, "{:<15}{:.1f} us of CPU a message, {:.1f} % of one processor; events waited {:.2f} ms (p99)\n",
      "generator", cpu_us_per_message(s.generator), cpu_share(s) * 100,
      ms(s.generator.lag_ns.percentile(99)));
  if (!result.account.empty()) fmt::format_to(at, "{:<15}{}\n", "account", result.account);
  for (const std::string& warning : warnings(options, result))
    fmt::format_to(at, "{:<15}{}\n", "WARNING", warning);
  return out;
}

namespace {

json::object generator_json(const LoadStats& s) {
  const GeneratorStats& g = s.generator;
  return {{"cpu_us_per_message", cpu_us_per_message(g)},
          {"cpu_share", cpu_share(s)},
          {"busiest_thread_share", g.busiest},
          {"waited_share", g.waited},
          {"lag_ms", latency_json(g.lag_ns)},
          {"late_ms", latency_json(g.late_ns)},
          {"without_free_client", g.without_client},
          {"without_connection", g.without_connection}};
}

}  // namespace

std::string report_json(const LoadOptions& options, const LoadResult& result) {
  const LoadStats& s = result.stats;
  json::array texts;
  for (const std::string& warning : warnings(options, result)) texts.emplace_back(json_text(warning));
  json::object root{
      {"kind", "mailbench-load"},
      {"version", 2},
      {"run", json_text(result.run)},
      {"interrupted", result.interrupted},
      {"settings", settings_json(options)},
      {"warnings", std::move(texts)},
      {"window_s", seconds(s.window)},
      {"messages_per_minute", messages_per_minute(s)},
      {"acknowledged", s.acknowledged},
      {"messages", s.messages},
      {"bytes_per_s", ratio(static_cast<double>(s.bytes), seconds(s.window))},
      {"latency_ms", latency_json(s.latency.good)},
      {"latency_distribution", distribution_json(s.latency.good)},
      {"failed_latency_ms", latency_json(s.latency.failed)},
      {"phases_ms", phases_json(s, &Timing::good)},
      {"failed_phases_ms", phases_json(s, &Timing::failed)},
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
      {"waiting", result.waiting},
      {"behind", result.behind},
      {"longest_gap_s", seconds(longest_gap(s))},
      {"generator", generator_json(s)},
      {"account", json_text(result.account)},
      {"tick_s", seconds(LoadStats::kTick)},
      {"acknowledged_per_tick", json::array(s.acknowledged_per_tick.begin(), s.acknowledged_per_tick.end())},
      {"seconds", seconds_json(result)}};
  root["settings"].as_object()["users"] = result.users;
  if (options.schedule.rate) root["from_sending_ms"] = latency_json(s.service.good);
  return indented_json(root);
}

}  // namespace twinloft::mailbench
