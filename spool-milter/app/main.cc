// spool-milter: Postfix or Sendmail asks it during SMTP whether a recipient's mail can be delivered.
// `spool-milter --help` lists the commands; docs/spool-milter.md describes them.
#include <sysexits.h>

#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "check_config.h"
#include "serve.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/service/command_line.h"
#include "twinloft/lmtpd/service/supervise.h"

namespace {

using namespace twinloft;

constexpr const char* usage_text =
    "usage: spool-milter run [--config FILE]           answer MTAs; stays in the foreground, logs to "
    "standard "
    "error\n"
    "       spool-milter check-config [--config FILE]  show errors of the configuration; exit 0 or 78\n"
    "       spool-milter COMMAND --help                help for one command\n"
    "       spool-milter --help | --version\n"
    "FILE is lmtpd's configuration, with a section [spool_milter]; /etc/twinloft/lmtpd.toml by default.\n"
    "\"spool-milter --config FILE\" means \"spool-milter run --config FILE\".\n"
    "SIGTERM stops spool-milter. SIGHUP reads FILE again.\n";

constexpr lmtpd::Subcommand subcommands[] = {
    {"run",
     "usage: spool-milter run [--config FILE]\n"
     "Answers MTAs that ask by the milter protocol. Stays in the foreground and logs to standard error.\n"
     "FILE is /etc/twinloft/lmtpd.toml by default.\n"
     "SIGTERM: answers what was asked, exit code 0. A second SIGTERM ends at once.\n"
     "SIGHUP: reads FILE again. If FILE has an error, spool-milter keeps the previous configuration.\n"
     "Exit codes: 0 stopped normally, 75 questions were left unanswered,\n"
     "78 the configuration is wrong (check-config shows why),\n"
     "69 cannot start now, but a later start may succeed, for example if an address is in use.\n"},
    {"check-config",
     "usage: spool-milter check-config [--config FILE]\n"
     "Shows every error that run would refuse, or that would defer all mail. Changes nothing.\n"
     "FILE is /etc/twinloft/lmtpd.toml by default. Run it as root: it then opens files as the user that\n"
     "spool-milter becomes.\n"
     "Exit codes: 0 run would start, 78 the configuration has errors.\n"},
};
constexpr lmtpd::Program program{"spool-milter", usage_text, subcommands, "run"};

int run(std::span<const std::string> args) {
  auto line = lmtpd::read_command_line(program, args, TWINLOFT_VERSION);
  if (!line) return line.error();
  if (line->command == "run")
    return lmtpd::supervise(line->file, {.name = "spool-milter",
                                         .work = "answers",
                                         .lost = "MTAs with a connection did without an answer",
                                         .section = "[spool_milter]",
                                         .load = spool_milter::load_config,
                                         .serve = spool_milter::serve});
  log_set_program("");
  return spool_milter::check_config(line->file, std::cout, std::cerr);
}

}  // namespace

int main(int argc, char** argv) {
  return twinloft::lmtpd::run_program("spool-milter", argc, argv, run);
}
