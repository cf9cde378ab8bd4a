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
#include "twinloft/spool-repl/daemon/volume_runner.h"

namespace twinloft::repl::ctl {
namespace {

namespace po = boost::program_options;

constexpr const char* usage_text =
    "usage: spool-repl COMMAND [options] [VOLUME]\n"
    "\n"
    "  create VOLUME        make the journal and the data area of this replica\n"
    "  serve                serve every volume of the configuration until SIGTERM\n"
    "  status [VOLUME]      role, connections, disk state (exit 2: a volume is suspended or failed)\n"
    "  promote VOLUME       make this replica primary (--force: although others may have what it lacks)\n"
    "  demote VOLUME        make it secondary; its device must not be in use\n"
    "  disconnect VOLUME    close the connections to the other replicas, and keep them closed\n"
    "  connect VOLUME       open them again\n"
    "  check-config         read the configuration and say what is wrong with it\n"
    "\n"
    "  --config FILE        default /etc/twinloft/spool-repl.toml\n"
    "  --json               status as JSON, a line a volume\n"
    "  --force              with promote\n"
    "  --version, --help\n";

struct Options {
  std::string command, config = "/etc/twinloft/spool-repl.toml", volume;
  bool json = false, force = false;
};

int complain(const Error& error, int exit_code) {
  fmt::print(stderr, "spool-repl: {}\n", error.message);
  return exit_code;
}

int create(const daemon::NodeSettings& node, const Options& options) {
  for (const auto& v : node.volumes) {
    if (v.name != options.volume) continue;
    auto done = daemon::create_volume(v);
    if (!done) return complain(done.error(), exit_failed);
    fmt::print("{}", *done);
    return exit_ok;
  }
  return complain({Errc::invalid, fmt::format("create: which volume? \"{}\" is not in {}", options.volume,
                                              options.config)}, exit_usage);
}

// "suspended":true and "failed":true come from our own serializer, so a search is enough to see them.
bool troubled(const std::string& json) {
  return json.find("\"suspended\":true") != std::string::npos || json.find("\"failed\":true") != std::string::npos;
}

int status(const daemon::NodeSettings& node, const Options& options) {
  bool any = false;
  int result = exit_ok;
  for (const auto& v : node.volumes) {
    if (!options.volume.empty() && v.name != options.volume) continue;
    any = true;
    auto json = control::ask(v.control, "status json", std::chrono::seconds(5));
    if (!json) {
      result = complain({json.error().code, fmt::format("volume {}: {}", v.name, json.error().message)},
                        exit_unavailable);
      continue;
    }
    if (troubled(*json) && result == exit_ok) result = exit_degraded;
    if (options.json) {
      fmt::print("{}", *json);
      continue;
    }
    auto text = control::ask(v.control, "status", std::chrono::seconds(5));
    if (!text) return complain(text.error(), exit_unavailable);
    fmt::print("{}", *text);
  }
  if (!any) return complain({Errc::invalid, fmt::format("no volume \"{}\" in {}", options.volume, options.config)},
                            exit_usage);
  return result;
}

// Long: a demotion brings everything to the other replicas first.
constexpr Duration role_change_time_max = std::chrono::minutes(2);

int ask_node(const daemon::NodeSettings& node, const Options& options) {
  for (const auto& v : node.volumes) {
    if (v.name != options.volume) continue;
    auto done = control::ask(v.control, options.command + (options.force ? " force" : ""), role_change_time_max);
    if (!done) return complain(done.error(), done.error().code == Errc::unavailable ? exit_unavailable : exit_failed);
    fmt::print("{}", *done);
    return exit_ok;
  }
  return complain({Errc::invalid, fmt::format("{}: which volume? \"{}\" is not in {}", options.command, options.volume,
                                              options.config)}, exit_usage);
}

std::optional<int> parse(int argc, char** argv, Options& out) {
  po::options_description visible, all;
  visible.add_options()("config", po::value(&out.config))("json", po::bool_switch(&out.json))("force", po::bool_switch(&out.force))("help", "")("version", "");
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

int run(int argc, char** argv) {
  log_set_program("spool-repl");
  Options options;
  if (auto done = parse(argc, argv, options)) return *done;
  const std::string known[] = {"create", "serve", "status", "promote", "demote",
                               "connect", "disconnect", "check-config"};
  if (std::find(std::begin(known), std::end(known), options.command) == std::end(known)) {
    fmt::print(stderr, "spool-repl: {}\n{}",
               options.command.empty() ? "a command is missing" : "unknown command \"" + options.command + "\"",
               usage_text);
    return exit_usage;
  }
  auto node = daemon::load_config(options.config);
  if (!node) return complain(node.error(), exit_config);
  if (options.command == "create") return create(*node, options);
  if (options.command == "status") return status(*node, options);
  if (options.command == "serve") return serve(*node);
  if (options.command == "check-config") {
    fmt::print("{}: ok, {} volume(s)\n", options.config, node->volumes.size());
    return exit_ok;
  }
  return ask_node(*node, options);
}

}  // namespace
}  // namespace twinloft::repl::ctl

int main(int argc, char** argv) {
  try {
    return twinloft::repl::ctl::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "spool-repl: {}\n", e.what());
    return twinloft::repl::ctl::exit_failed;
  }
}
