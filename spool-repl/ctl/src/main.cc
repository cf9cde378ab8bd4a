// spool-repl: create, serve and look at replicated volumes.
#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <iostream>
#include <optional>

#include "commands.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/check.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"

namespace twinloft::repl::ctl {
namespace {

namespace po = boost::program_options;

constexpr const char* usage_text =
    "usage: spool-repl COMMAND [options] [VOLUME]\n"
    "\n"
    "  create VOLUME        make the journal and the data area of this replica (--adopt: keep what the data area holds;\n"
    "                       --overwrite: destroy what is recognised on a block device)\n"
    "  serve                serve every volume of the configuration until SIGTERM\n"
    "  status [VOLUME]      role, connections, disk state (exit 2: a volume is suspended or failed)\n"
    "                       --watch: again every second, with the progress of a resync\n"
    "  events [VOLUME]      what happened (--follow: and what happens next; --since N: only what came behind event N)\n"
    "  promote VOLUME       make this replica primary (--force: although others may have what it lacks)\n"
    "  demote VOLUME        make it secondary; its device must not be in use\n"
    "  discard VOLUME       give up this side of a split brain: this replica is filled from the other one (salvage its mail first)\n"
    "  disconnect VOLUME    close the connections to the other replicas, and keep them closed\n"
    "  connect VOLUME       open them again\n"
    "  journal VOLUME       list the records of the journal of a replica that is not being served, check them, or make an\n"
    "                       image of the volume as it was at an LSN (spool-repl journal --help)\n"
    "  salvage              after a split brain: bring the mail of the losing side to the winner (spool-repl salvage --help)\n"
    "  check-config         read the configuration, look at what it names, and say what is wrong\n"
    "                       (--syntax: look at nothing else)\n"
    "\n"
    "  --config FILE        default /etc/twinloft/spool-repl.toml\n"
    "  --json               status and events as JSON, a line each\n"
    "  --force              with promote; with discard: although nothing of the history here is found in the other's\n"
    "  --accept-loss        with promote: although acknowledged writes were lost here in a damaged journal\n"
    "  --version, --help\n";

int create(const daemon::NodeSettings& node, const NodeOptions& options) {
  for (const auto& v : node.volumes) {
    if (v.name != options.volume) continue;
    auto done = daemon::create_volume(v, {options.adopt, options.overwrite});
    if (!done) return report(done.error(), exit_failed);
    fmt::print("{}", *done);
    return exit_ok;
  }
  return report({Errc::invalid, fmt::format("create: which volume? \"{}\" is not in {}", options.volume,
                                              options.config)}, exit_usage);
}

// Long: a demotion brings everything to the other replicas first.
constexpr Duration role_change_time_max = std::chrono::minutes(2);

int ask_node(const daemon::NodeSettings& node, const NodeOptions& options) {
  for (const auto& v : node.volumes) {
    if (v.name != options.volume) continue;
    auto done = control::ask(v.control, options.command + (options.accept_loss ? " accept-loss" : options.force ? " force" : ""), role_change_time_max);
    if (!done) return report(done.error(), done.error().code == Errc::unavailable ? exit_unavailable : exit_failed);
    fmt::print("{}", *done);
    return exit_ok;
  }
  return report({Errc::invalid, fmt::format("{}: which volume? \"{}\" is not in {}", options.command, options.volume,
                                              options.config)}, exit_usage);
}

int check_config(const daemon::NodeSettings& node, const NodeOptions& options) {
  int result = exit_ok;
  for (const auto& v : node.volumes) {
    if (options.syntax) break;
    daemon::Findings found = daemon::check_volume(v);
    for (const std::string& text : found.warnings) fmt::print(stderr, "spool-repl: warning: {}\n", text);
    for (const std::string& text : found.errors) result = report({Errc::invalid, text, 0}, exit_config);
  }
  if (result == exit_ok) fmt::print("{}: ok, {} volume(s)\n", options.config, node.volumes.size());
  return result;
}

std::optional<int> parse(int argc, char** argv, NodeOptions& out) {
  po::options_description visible, all;
  visible.add_options()("config", po::value(&out.config))("json", po::bool_switch(&out.json))("force", po::bool_switch(&out.force))("adopt", po::bool_switch(&out.adopt))("overwrite", po::bool_switch(&out.overwrite))("accept-loss", po::bool_switch(&out.accept_loss))("syntax", po::bool_switch(&out.syntax))("watch", po::bool_switch(&out.watch))("follow", po::bool_switch(&out.follow))("since", po::value(&out.since))("help", "")("version", "");
  all.add(visible).add_options()("command", po::value(&out.command))("volume", po::value(&out.volume));
  po::positional_options_description positional;
  positional.add("command", 1).add("volume", 1);
  po::variables_map found;
  try {
    po::store(po::command_line_parser(argc, argv).options(all).positional(positional).run(), found);
    po::notify(found);
  } catch (const po::error& e) {
    fmt::print(stderr, "spool-repl: {}\n{}", e.what(), usage_text);
    return exit_usage;
  }
  if (found.contains("version")) {
    fmt::print("spool-repl {}\n", TWINLOFT_VERSION);
    return exit_ok;
  }
  if (found.contains("help")) {
    fmt::print("{}", usage_text);
    return exit_ok;
  }
  return std::nullopt;
}

// Some commands have options of their own; what stands before them is kept.
std::optional<std::vector<std::string>> arguments_of(std::string_view command, int argc, char** argv) {
  std::vector<std::string> all(argv + 1, argv + argc);
  auto word = all.begin();
  while (word != all.end() && word->starts_with("-")) word += *word == "--config" && word + 1 != all.end() ? 2 : 1;
  if (word == all.end() || *word != command) return std::nullopt;
  all.erase(word);
  return all;
}

int run(int argc, char** argv) {
  log_set_program("spool-repl");
  if (auto journal = arguments_of("journal", argc, argv)) return journal_command(*journal);
  if (auto salvage = arguments_of("salvage", argc, argv)) return salvage_command(*salvage);
  NodeOptions options;
  if (auto done = parse(argc, argv, options)) return *done;
  const std::string known[] = {"create", "serve", "status", "events", "promote", "demote", "discard",
                               "connect", "disconnect", "check-config"};
  if (std::find(std::begin(known), std::end(known), options.command) == std::end(known)) {
    fmt::print(stderr, "spool-repl: {}\n{}",
               options.command.empty() ? "a command is missing" : "unknown command \"" + options.command + "\"",
               usage_text);
    return exit_usage;
  }
  auto node = daemon::load_config(options.config);
  if (!node) return report(node.error(), exit_config);
  if (options.command == "create") return create(*node, options);
  if (options.command == "status") return status(*node, options);
  if (options.command == "events") return events(*node, options);
  if (options.command == "serve") return serve(*node);
  if (options.command == "check-config") {
    return check_config(*node, options);
  }
  return ask_node(*node, options);
}

}  // namespace

int report(const Error& error, int exit_code) {
  fmt::print(stderr, "spool-repl: {}\n", error.message);
  return exit_code;
}

}  // namespace twinloft::repl::ctl

int main(int argc, char** argv) {
  try {
    return twinloft::repl::ctl::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "spool-repl: {}\n", e.what());
    return twinloft::repl::ctl::exit_failed;
  }
}
