#include <iterator>

#include "twinloft/mailbench/lda.h"
#include "twinloft/mailbench/report.h"

namespace twinloft::mailbench {

namespace {

double cpu_us(const LdaResult& r) {
  return r.agent_runs == 0 ? 0
                           : static_cast<double>(r.agent_cpu_ns) / 1e3 / static_cast<double>(r.agent_runs);
}

std::string code_name(int code) {
  return code == 256 ? "none" : std::to_string(code);
}

}  // namespace

std::string lda_text(const LoadOptions& load, const LdaOptions& lda, const LdaResult& r) {
  const LoadStats& s = r.load.stats;
  std::string out = fmt::format("mailbench lda, run {}{}\n", r.load.run,
                                r.load.interrupted ? " (interrupted)" : "");
  auto at = std::back_inserter(out);
  fmt::format_to(at, "{:<15}{}\n", "command", lda.command.text());
  fmt::format_to(at, "{:<15}{} at a time, {}\n", "programs", load.clients,
                 r.load.corpus.empty()
                     ? fmt::format("size {} (mean {:.0f} bytes)", load.size.text(), load.size.mean())
                     : fmt::format("{}: {}", load.messages_from, r.load.corpus));
  fmt::format_to(at, "{:<15}{:.2f} s\n", "measured", std::chrono::duration<double>(s.window).count());
  out += loop_line(load, r.load);
  fmt::format_to(at, "{:<15}{:.0f} messages per minute ({} delivered)\n", "throughput",
                 messages_per_minute(s), s.acknowledged);
  out += latency_line("latency", s.latency.good);
  if (load.schedule.rate) out += latency_line("from starting", s.service.good);
  if (s.latency.failed.count() > 0)
    out += latency_line(fmt::format("{} failed", s.latency.failed.count()), s.latency.failed);
  fmt::format_to(at, "{:<15}", "exit codes");
  for (auto [code, count] : s.codes) fmt::format_to(at, "{}: {}  ", code_name(code), count);
  fmt::format_to(at, "\n{:<15}{:.0f} us a message\n", "agent's CPU", cpu_us(r));
  for (const auto& [text, count] : r.complaints)
    fmt::format_to(at, "{:<15}{} x {}\n", "complaint", count, text);
  for (const std::string& warning : warnings(load, r.load))
    fmt::format_to(at, "{:<15}{}\n", "WARNING", warning);
  if (!r.load.account.empty()) fmt::format_to(at, "{:<15}{}\n", "account", r.load.account);
  return out;
}

std::string lda_json(const LoadOptions& load, const LdaOptions& lda, const LdaResult& r) {
  const LoadStats& s = r.load.stats;
  json::object codes, complaints;
  for (auto [code, count] : s.codes) codes[code_name(code)] = count;
  for (const auto& [text, count] : r.complaints) complaints[json_text(text)] = count;
  json::object settings{{"command", json_text(lda.command.text())},
                        {"clients", load.clients},
                        {"ramp_s", std::chrono::duration<double>(load.schedule.ramp).count()},
                        {"warmup_s", std::chrono::duration<double>(load.schedule.warmup).count()}};
  if (load.schedule.rate) settings["rate_per_s"] = *load.schedule.rate;
  json::array texts;
  for (const std::string& warning : warnings(load, r.load)) texts.emplace_back(json_text(warning));
  json::object root{{"kind", "mailbench-lda"},
                    {"version", 1},
                    {"run", json_text(r.load.run)},
                    {"interrupted", r.load.interrupted},
                    {"settings", std::move(settings)},
                    {"warnings", std::move(texts)},
                    {"window_s", std::chrono::duration<double>(s.window).count()},
                    {"messages_per_minute", messages_per_minute(s)},
                    {"acknowledged", s.acknowledged},
                    {"latency_ms", latency_json(s.latency.good)},
                    {"latency_distribution", distribution_json(s.latency.good)},
                    {"failed_latency_ms", latency_json(s.latency.failed)},
                    {"exit_codes", std::move(codes)},
                    {"complaints", std::move(complaints)},
                    {"agent_cpu_us_per_message", cpu_us(r)},
                    {"behind", r.load.behind},
                    {"account", json_text(r.load.account)},
                    {"seconds", seconds_json(r.load)}};
  if (load.schedule.rate) root["from_sending_ms"] = latency_json(s.service.good);
  return indented_json(root);
}

}  // namespace twinloft::mailbench
