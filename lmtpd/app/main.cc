// lmtpd: mail delivery over LMTP. `lmtpd --help` lists the commands; docs/lmtpd.md describes them.
//
// Order of the start: the supervisor reads the configuration and opens the sockets (supervise.cc). It forks
// the server process (serve.cc), which forks the spawner as root, before any thread exists. Then the server
// process becomes the mail user permanently. Only then it opens the user database and serves.
#include <sysexits.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "check_config.h"
#include "serve.h"
#include "twinloft/base/log.h"
#include "twinloft/base/result.h"
#include "twinloft/base/suggest.h"
#include "twinloft/lmtpd/config/check_command.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/service/supervise.h"
#include "users.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace po = boost::program_options;

constexpr const char* usage_text =
    "usage: lmtpd serve [--config FILE]         deliver mail; stays in the foreground, logs to standard "
    "error\n"
    "       lmtpd check-config [--config FILE]  show errors of the configuration; exit 0 or 78\n"
    "       lmtpd user ADDRESS [--config FILE]  show the user of an address; exit 0 if mail is accepted\n"
    "       lmtpd check-command TEMPLATE [name=value ...]\n"
    "                                           show the words of an expanded command template, as JSON\n"
    "       lmtpd COMMAND --help                help for one command\n"
    "       lmtpd --help | --version\n"
    "FILE is /etc/twinloft/lmtpd.toml by default. The word \"--config\" may be omitted after a command.\n"
    "\"lmtpd --config FILE\" means \"lmtpd serve --config FILE\".\n"
    "SIGTERM stops the server after its deliveries, a second SIGTERM aborts them. SIGHUP reads FILE again.\n";

struct Subcommand {
  std::string_view name;
  const char* help;
};
constexpr Subcommand subcommands[] = {
    {"serve",
     "usage: lmtpd serve [--config FILE]\n"
     "Delivers mail. Stays in the foreground and logs to standard error.\n"
     "FILE is /etc/twinloft/lmtpd.toml by default.\n"
     "SIGTERM: finishes deliveries in flight, exit code 0. A second SIGTERM aborts them, exit code 75.\n"
     "SIGHUP: reads FILE again. If FILE has an error, lmtpd keeps the previous configuration.\n"
     "Exit codes: 0 stopped normally, 75 deliveries were aborted,\n"
     "78 the configuration is wrong (check-config shows why),\n"
     "69 cannot start now, but a later start may succeed, for example if an address is in use.\n"},
    {"check-config",
     "usage: lmtpd check-config [--config FILE]\n"
     "Shows every error that serve would refuse, or that would defer all mail. Warns of ignored settings. "
     "Changes nothing.\n"
     "FILE is /etc/twinloft/lmtpd.toml by default. Run it as root: it then opens files as the user that "
     "lmtpd becomes.\n"
     "Exit codes: 0 serve would start, 78 the configuration has errors.\n"},
    {"user",
     "usage: lmtpd user ADDRESS [--config FILE]\n"
     "Shows the user of an address: name, home, Maildir, agent or next hop.\n"
     "FILE is /etc/twinloft/lmtpd.toml by default.\n"
     "Exit codes: 0 mail is accepted, 67 no such user, or the user is disabled, 64 not an address,\n"
     "75 mail would be deferred, 78 the configuration is wrong.\n"},
};

int usage_error(const std::string& what) {
  std::cerr << "lmtpd: " << what << "\n" << usage_text;
  return EX_USAGE;
}

// check-command is not parsed here: all words behind it are its arguments, even words that begin with "-".
struct CommandLine {
  std::string command;
  std::string address;  // of `user`
  std::string file = default_config_path;
  bool help = false;
  bool version = false;
};

// Errors: an unknown option, an option without its value, too many words.
Result<CommandLine> parse_command_line(std::span<const std::string> args) {
  CommandLine out;
  std::vector<std::string> words;
  po::options_description options;
  options.add_options()("help,h", "")("version,V", "")("config,c", po::value<std::string>())(
      "word", po::value(&words));
  po::positional_options_description positional;
  positional.add("word", -1);
  po::variables_map given;
  // Abbreviations are refused: an option added later must not change the meaning of a script.
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
  out.help = given.count("help") > 0;
  out.version = given.count("version") > 0;
  if (out.help || out.version) {
    if (!words.empty()) out.command = words.front();
    return out;
  }
  if (!words.empty() && words.front() == "user") {
    if (words.size() == 1) return fail(Errc::invalid, "ADDRESS is missing: lmtpd user ADDRESS");
    out.address = words[1];
    words.erase(words.begin() + 1);
  }
  if (given.count("config")) {
    out.file = given["config"].as<std::string>();
    if (words.empty()) words.push_back("serve");
  } else if (words.size() == 2) {
    out.file = words.back();
    words.pop_back();
  }
  if (words.size() > 1) return fail(Errc::invalid, "unexpected argument {}", words.back());
  if (!words.empty()) out.command = words.front();
  return out;
}

int run(std::span<const std::string> args) {
  if (!args.empty() && args.front() == "check-command")
    return check_command(args.subspan(1), std::cout, std::cerr);
  auto line = parse_command_line(args);
  if (!line) return usage_error(line.error().message);
  auto subcommand = std::ranges::find(subcommands, line->command, &Subcommand::name);
  constexpr std::string_view known[] = {"serve", "check-config", "user", "check-command"};
  bool unknown = !line->command.empty() && std::ranges::find(known, line->command) == std::end(known);
  if (unknown)
    return usage_error("unknown command \"" + line->command + "\"; " + did_you_mean(line->command, known));
  if (line->help) {
    std::cout << (subcommand == std::end(subcommands) ? usage_text : subcommand->help);
    return 0;
  }
  if (line->version) {
    std::cout << "lmtpd " TWINLOFT_VERSION "\n";
    return 0;
  }
  if (line->command.empty()) return usage_error("a command is missing");
  if (line->command == "serve")
    return supervise(line->file, {.name = "lmtpd",
                                  .work = "deliveries",
                                  .lost = "clients of deliveries in flight got no 250",
                                  .load = load_config,
                                  .serve = serve});
  log_set_program("");
  if (line->command == "user") return show_user(line->file, line->address, std::cout, std::cerr);
  if (line->command == "check-config") return check_config(line->file, std::cout, std::cerr);
  return usage_error("check-command must be the first word");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  try {
    return run(args);
  } catch (const std::exception& e) {
    std::cerr << "lmtpd: " << e.what() << "\n";
    return EX_SOFTWARE;
  }
}
