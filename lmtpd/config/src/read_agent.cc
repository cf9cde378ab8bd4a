#include "read_agent.h"

#include <charconv>
#include <limits>

#include <fmt/format.h>

namespace twinloft::lmtpd {

namespace {

void read_exits(const TomlTable& agent, ExitMap& exits) {
  const toml::table* raw = agent.child("exits");
  if (!raw) return;
  TomlTable table(agent.problems(), *raw, agent.where() + ".exits");
  for (const auto& [key, value] : *raw) {
    std::string_view name = key.str();
    int code = -1;
    auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), code);
    if (ec != std::errc() || end != name.data() + name.size()) {
      table.error(name, "the key must be an exit code, 0 to 255");
      continue;
    }
    std::string text;
    table.text(name, text, true);
    if (text.empty()) continue;
    if (Status set = exits.set(code, text); !set) table.error(name, set.error().message);
  }
}

void read_rlimits(const TomlTable& agent, AgentLimits& limits) {
  const toml::table* raw = agent.child("rlimits");
  if (!raw) return;
  TomlTable table(agent.problems(), *raw, agent.where() + ".rlimits");
  table.allow({"cpu", "memory", "file_size", "open_files", "processes"});
  std::chrono::milliseconds cpu{0};
  table.duration("cpu", cpu);
  limits.cpu_seconds = static_cast<std::uint64_t>((cpu.count() + 999) / 1000);
  table.size("memory", 1u << 20, no_bound, limits.memory_bytes);
  table.size("file_size", 1u << 10, no_bound, limits.file_bytes);
  table.number("open_files", 8, 1u << 20, limits.open_files);
  table.number("processes", 1, 1u << 22, limits.processes);
}

void read_environment(const TomlTable& agent, AgentSpec& spec) {
  agent.texts("pass_environment", spec.pass_environment);
  const toml::table* raw = agent.child("environment");
  if (!raw) return;
  TomlTable table(agent.problems(), *raw, agent.where() + ".environment");
  for (const auto& [key, node] : *raw) {
    std::string value;
    table.text(key.str(), value);
    spec.set_environment.emplace_back(std::string(key.str()), std::move(value));
  }
}

}  // namespace

AgentSpec read_agent(const TomlTable& table, std::string name, std::vector<std::string>& warnings) {
  AgentSpec spec;
  spec.name = std::move(name);
  table.allow({"command", "deliveries", "timeout", "kill_grace", "output_limit", "exits", "rlimits",
               "pass_environment", "environment", "no_new_privs", "must_read_stdin", "syncs", "smtputf8",
               "crlf", "return_path", "delivered_to", "original_to", "received"});
  table.text("command", spec.command, true);
  table.duration("timeout", spec.time_limit);
  table.number("deliveries", 1, 4096, spec.deliveries_max);
  table.duration("kill_grace", spec.kill_grace);
  std::uint64_t output = spec.output_bytes_max;
  table.size("output_limit", 0, 65536, output);
  spec.output_bytes_max = output;
  read_exits(table, spec.exits);
  read_rlimits(table, spec.limits);
  read_environment(table, spec);
  table.flag("no_new_privs", spec.no_new_privs);
  table.flag("must_read_stdin", spec.must_read_stdin);
  table.flag("syncs", spec.syncs);
  table.flag("smtputf8", spec.smtputf8);
  table.flag("crlf", spec.crlf);
  table.flag("return_path", spec.add_return_path);
  table.flag("delivered_to", spec.add_delivered_to);
  table.flag("original_to", spec.add_original_to);
  table.flag("received", spec.add_received);
  if (spec.command.empty()) return spec;
  std::vector<std::string> found;
  // The messages contain agent.<name>.command. The position is that of the template.
  std::string place = table.place("command");
  place.resize(place.size() - (table.where().size() + std::string_view(".command").size()));
  if (Status fits = check_agent_spec(spec, &found); !fits) {
    table.problems().errors.push_back(place + fits.error().message);
    table.problems().sections.insert("agent");
  }
  for (std::string& warning : found) warnings.push_back(place + warning);
  return spec;
}

}  // namespace twinloft::lmtpd
