// spool-repl: create, serve and look at replicated volumes.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <optional>

#include "command_line.h"
#include "commands.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/check.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"
#include "twinloft/spool-repl/export/loop_process.h"
#include "usage.h"

namespace twinloft::repl::ctl {
namespace {

int create(const daemon::NodeSettings& node, const NodeOptions& options) {
  for (const auto& v : node.volumes) {
    if (v.name != options.volume) continue;
    auto done = daemon::create_volume(v, {options.adopt, options.overwrite});
    if (!done) return report(done.error(), exit_failed);
    fmt::print("{}", *done);
    return exit_ok;
  }
  return report({Errc::invalid,
                 fmt::format("create: which volume? \"{}\" is not in {}", options.volume, options.config)},
                exit_usage);
}

// A long time: a demotion sends all writes to the other replicas first.
constexpr Duration role_change_time_max = std::chrono::minutes(2);

int ask_node(const daemon::NodeSettings& node, const NodeOptions& options) {
  for (const auto& v : node.volumes) {
    if (v.name != options.volume) continue;
    auto done = control::ask(v.control,
                             options.command + (options.accept_loss ? " accept-loss"
                                                : options.force     ? " force"
                                                                    : ""),
                             role_change_time_max);
    if (!done) return report(done.error(), exit_of_answer(done.error()));
    fmt::print("{}", *done);
    return exit_ok;
  }
  return report({Errc::invalid, fmt::format("{}: which volume? \"{}\" is not in {}", options.command,
                                            options.volume, options.config)},
                exit_usage);
}

int check_config(const daemon::NodeSettings& node, const NodeOptions& options) {
  int result = exit_ok;
  if (!options.syntax)
    for (const std::string& text : daemon::check_shared(node).errors)
      result = report({Errc::invalid, text, 0}, exit_config);
  for (const auto& v : node.volumes) {
    if (options.syntax) break;
    daemon::Findings found = daemon::check_volume(v);
    for (const std::string& text : found.warnings) fmt::print(stderr, "spool-repl: warning: {}\n", text);
    for (const std::string& text : found.errors) result = report({Errc::invalid, text, 0}, exit_config);
  }
  if (result == exit_ok) fmt::print("{}: ok, {} volume(s)\n", options.config, node.volumes.size());
  return result;
}

int complain_usage(std::string_view what, std::string_view command) {
  fmt::print(stderr, "spool-repl: {}\n{}", what, usage_of(command));
  return exit_usage;
}

bool is_general(std::string_view option) {
  return option == "config" || option == "command" || option == "volume" || option == "help" ||
         option == "version";
}

// Each option belongs to some commands. With another command it would be ignored, so it is refused.
std::optional<std::string> misplaced(const po::variables_map& found, const std::string& command) {
  for (const auto& [name, value] : found) {
    if (!is_general(name) && !value.defaulted() && !takes_option(command, name))
      return "--" + name + " does not apply to " + command;
  }
  return std::nullopt;
}

// The first word that is not an option: the intended command, also if the options cannot be read.
std::string command_of(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (word == "--config")
      ++i;
    else if (!word.starts_with("-"))
      return std::string(word);
  }
  return {};
}

std::vector<std::string> names_of(const po::options_description& options, const std::string& command) {
  std::vector<std::string> out;
  for (const auto& option : options.options())
    if (!is_command(command) || is_general(option->long_name()) || takes_option(command, option->long_name()))
      out.push_back("--" + option->long_name());
  return out;
}

std::optional<int> parse(int argc, char** argv, NodeOptions& out) {
  po::options_description visible, all;
  std::string since;
  visible.add_options()("config", po::value(&out.config))("json", po::bool_switch(&out.json))(
      "force", po::bool_switch(&out.force))("adopt", po::bool_switch(&out.adopt))(
      "overwrite", po::bool_switch(&out.overwrite))("accept-loss", po::bool_switch(&out.accept_loss))(
      "syntax", po::bool_switch(&out.syntax))("watch", po::bool_switch(&out.watch))(
      "follow", po::bool_switch(&out.follow))("since", po::value(&since))("help,h", "")("version,V", "");
  all.add(visible).add_options()("command", po::value(&out.command))("volume", po::value(&out.volume));
  po::positional_options_description positional;
  positional.add("command", 1).add("volume", 1);
  po::variables_map found;
  // Only complete names, so that a later option does not change the meaning of an abbreviation.
  auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  try {
    po::store(po::command_line_parser(argc, argv).options(all).positional(positional).style(style).run(),
              found);
    po::notify(found);
  } catch (const po::unknown_option& e) {
    std::string command = command_of(argc, argv);
    return complain_usage(e.what() + meant(e.get_option_name(), names_of(visible, command)), command);
  } catch (const po::error& e) {
    return complain_usage(e.what(), command_of(argc, argv));
  }
  if (!since.empty())  // Boost converts "-1" to a large number
    if (auto [end, ec] = std::from_chars(since.data(), since.data() + since.size(), out.since);
        ec != std::errc() || end != since.data() + since.size())
      return complain_usage(fmt::format("--since: expected the number of an event, not \"{}\"", since),
                            command_of(argc, argv));
  if (found.contains("version")) {
    fmt::print("spool-repl {}\n", TWINLOFT_VERSION);
    return exit_ok;
  }
  bool help = found.contains("help");
  if (!is_command(out.command) && !(help && out.command.empty()))
    return complain_usage(
        out.command.empty() ? "a command is missing"
                            : "unknown command \"" + out.command + "\"" + meant(out.command, command_names()),
        "");
  if (help) {
    fmt::print("{}", usage_of(out.command));
    return exit_ok;
  }
  if (auto wrong = misplaced(found, out.command)) return complain_usage(*wrong, out.command);
  return std::nullopt;
}

// Some commands have their own options. Earlier arguments are kept.
std::optional<std::vector<std::string>> arguments_of(std::string_view command, int argc, char** argv) {
  std::vector<std::string> all(argv + 1, argv + argc);
  auto word = all.begin();
  while (word != all.end() && word->starts_with("-"))
    word += *word == "--config" && word + 1 != all.end() ? 2 : 1;
  if (word == all.end() || *word != command) return std::nullopt;
  all.erase(word);
  return all;
}

int run(int argc, char** argv) {
  log_set_program("spool-repl");
  if (command_of(argc, argv) != "serve")  // `serve` handles one of them
    for (int number : {SIGUSR1, SIGUSR2}) (void)::signal(number, SIG_IGN);
  if (auto journal = arguments_of("journal", argc, argv)) return journal_command(*journal);
  if (auto cert = arguments_of("cert", argc, argv)) return cert_command(*cert);
  if (auto salvage = arguments_of("salvage", argc, argv)) return salvage_command(*salvage);
  if (auto test = arguments_of("fuse-ring-test", argc, argv); test && test->empty()) ring_test_command();
  NodeOptions options;
  if (auto done = parse(argc, argv, options)) return *done;
  auto node = daemon::load_config(options.config);
  if (!node) return report(node.error(), exit_config);
  if (options.command == "create") return create(*node, options);
  if (options.command == "status") return status(*node, options);
  if (options.command == "events") return events(*node, options);
  if (options.command == "serve") return serve(*node, options.config);
  if (options.command == "check-config") {
    return check_config(*node, options);
  }
  return ask_node(*node, options);
}

}  // namespace

int report(const Error& error, int exit_code) {
  for (std::string_view text = error.message; !text.empty();) {
    std::string_view line = text.substr(0, text.find('\n'));
    fmt::print(stderr, "spool-repl: {}\n", line);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return exit_code;
}

int exit_of_answer(const Error& error) {
  if (error.code == Errc::unavailable) return exit_unavailable;
  return error.code == Errc::denied ? exit_denied : exit_failed;
}

}  // namespace twinloft::repl::ctl

int main(int argc, char** argv) {
  twinloft::repl::exports::serve_as_loop_process(argc, argv);
  try {
    return twinloft::repl::ctl::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "spool-repl: {}\n", e.what());
    return twinloft::repl::ctl::exit_failed;
  }
}
