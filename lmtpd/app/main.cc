// lmtpd: mail delivery over LMTP. `lmtpd --help` lists the commands; docs/lmtpd.md describes them.
//
// Order of the start: the supervisor reads the configuration and opens the sockets (supervise.cc). It forks
// the server process (serve.cc), which forks the spawner as root, before any thread exists. Then the server
// process becomes the mail user permanently. Only then it opens the user database and serves.
#include <sysexits.h>

#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "check_config.h"
#include "replay.h"
#include "serve.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/config/check_command.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/service/command_line.h"
#include "twinloft/lmtpd/service/supervise.h"
#include "users.h"

namespace {

using namespace twinloft;
using namespace twinloft::lmtpd;

constexpr const char* usage_text =
    "usage: lmtpd serve [--config FILE]         deliver mail; stays in the foreground, logs to standard "
    "error\n"
    "       lmtpd check-config [--config FILE]  show errors of the configuration; exit 0 or 78\n"
    "       lmtpd user ADDRESS [--config FILE]  show the user of an address; exit 0 if mail is accepted\n"
    "       lmtpd replay [--create | --retire | --set-aside] [--spool DIR] [--json] [--config FILE]\n"
    "                                           place what a crash has left in the spool's intake log\n"
    "       lmtpd check-command TEMPLATE [name=value ...]\n"
    "                                           show the words of an expanded command template, as JSON\n"
    "       lmtpd COMMAND --help                help for one command\n"
    "       lmtpd --help | --version\n"
    "FILE is /etc/twinloft/lmtpd.toml by default. The word \"--config\" may be omitted after a command.\n"
    "\"lmtpd --config FILE\" means \"lmtpd serve --config FILE\".\n"
    "SIGTERM stops the server after its deliveries, a second SIGTERM aborts them. SIGHUP reads FILE again.\n";

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
     "75 mail would be deferred, 78 the configuration is wrong.\n",
     "ADDRESS"},
    {"replay", replay_help},
    {"check-command", nullptr},
};
constexpr Program program{"lmtpd", usage_text, subcommands, "serve"};

// check-command is not parsed here: all words behind it are its arguments, even words that begin with "-".
int run(std::span<const std::string> args) {
  if (!args.empty() && args.front() == "check-command")
    return check_command(args.subspan(1), std::cout, std::cerr);
  ReplayWords words;
  words.rest.assign(args.begin(), args.end());
  if (!args.empty() && args.front() == "replay") {
    auto read = read_replay_words(args);
    if (!read) return usage_error(program, read.error().message);
    words = *std::move(read);
  }
  auto line = read_command_line(program, words.rest, TWINLOFT_VERSION);
  if (!line) return line.error();
  if (line->command == "serve")
    return supervise(line->file, {.name = "lmtpd",
                                  .work = "deliveries",
                                  .lost = "clients of deliveries in flight got no 250",
                                  .load = load_config,
                                  .serve = serve});
  log_set_program("");
  if (line->command == "replay") return replay(line->file, words, std::cout, std::cerr);
  if (line->command == "user") return show_user(line->file, line->argument, std::cout, std::cerr);
  if (line->command == "check-config") return check_config(line->file, std::cout, std::cerr);
  return usage_error(program, "check-command must be the first word");
}

}  // namespace

int main(int argc, char** argv) {
  return twinloft::lmtpd::run_program("lmtpd", argc, argv, run);
}
