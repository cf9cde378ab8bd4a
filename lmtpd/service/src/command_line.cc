#include "twinloft/lmtpd/service/command_line.h"

#include <fmt/format.h>
#include <sysexits.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <iostream>
#include <vector>

#include "twinloft/base/suggest.h"
#include "twinloft/lmtpd/config/config.h"

namespace twinloft::lmtpd {

namespace po = boost::program_options;

namespace {

struct Words {
  CommandLine line{.command = {}, .argument = {}, .file = default_config_path};
  bool help = false;
  bool version = false;
};

const Subcommand* find(const Program& program, std::string_view command) {
  auto found = std::ranges::find(program.subcommands, command, &Subcommand::name);
  return found == program.subcommands.end() ? nullptr : &*found;
}

Result<po::variables_map> parse(std::span<const std::string> args, std::vector<std::string>& words) {
  po::options_description options;
  options.add_options()("help,h", "")("version,V", "")("config,c", po::value<std::string>())(
      "word", po::value(&words));
  po::positional_options_description positional;
  positional.add("word", -1);
  po::variables_map given;
  auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  try {
    po::store(po::command_line_parser({args.begin(), args.end()})
                  .options(options)
                  .positional(positional)
                  .style(style)
                  .run(),
              given);
    po::notify(given);
  } catch (const po::unknown_option& e) {
    constexpr std::string_view known[] = {"--config", "--help", "--version"};
    return fail(Errc::invalid, "there is no option {}; {}", e.get_option_name(),
                did_you_mean(e.get_option_name(), known));
  } catch (const po::error& e) {
    return fail(Errc::invalid, "{}", e.what());
  }
  return given;
}

// Errors: an unknown option, an option without its value, too many words.
Result<Words> read_words(const Program& program, std::span<const std::string> args) {
  Words out;
  CommandLine& line = out.line;
  std::vector<std::string> words;
  TL_TRY_ASSIGN(po::variables_map given, parse(args, words));
  out.help = given.count("help") > 0;
  out.version = given.count("version") > 0;
  if (out.help || out.version) {
    if (!words.empty()) line.command = words.front();
    return out;
  }
  const Subcommand* subcommand = words.empty() ? nullptr : find(program, words.front());
  if (subcommand && !subcommand->argument.empty()) {
    if (words.size() == 1)
      return fail(Errc::invalid, "{} is missing: {} {} {}", subcommand->argument, program.name,
                  subcommand->name, subcommand->argument);
    line.argument = words[1];
    words.erase(words.begin() + 1);
  }
  if (given.count("config")) {
    line.file = given["config"].as<std::string>();
    if (words.empty()) words.emplace_back(program.serves);
  } else if (words.size() == 2) {
    line.file = words.back();
    words.pop_back();
  }
  if (words.size() > 1) return fail(Errc::invalid, "unexpected argument {}", words.back());
  if (!words.empty()) line.command = words.front();
  return out;
}

}  // namespace

int usage_error(const Program& program, const std::string& what) {
  std::cerr << program.name << ": " << what << "\n" << program.usage;
  return EX_USAGE;
}

std::expected<CommandLine, int> read_command_line(const Program& program, std::span<const std::string> args,
                                                  const char* version) {
  auto words = read_words(program, args);
  if (!words) return std::unexpected(usage_error(program, words.error().message));
  const std::string& command = words->line.command;
  const Subcommand* subcommand = find(program, command);
  if (!subcommand && !command.empty()) {
    std::vector<std::string_view> known;
    for (const Subcommand& each : program.subcommands) known.push_back(each.name);
    return std::unexpected(
        usage_error(program, "unknown command \"" + command + "\"; " + did_you_mean(command, known)));
  }
  if (words->help) {
    std::cout << (subcommand && subcommand->help ? subcommand->help : program.usage);
    return std::unexpected(0);
  }
  if (words->version) {
    std::cout << program.name << " " << version << "\n";
    return std::unexpected(0);
  }
  if (command.empty()) return std::unexpected(usage_error(program, "a command is missing"));
  return std::move(words->line);
}

int run_program(std::string_view name, int argc, char** argv,
                const std::function<int(const std::vector<std::string>& args)>& run) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::cerr << name << ": " << e.what() << "\n";
    return EX_SOFTWARE;
  }
}

}  // namespace twinloft::lmtpd
