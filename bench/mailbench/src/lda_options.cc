// The command line of `mailbench lda`.
#include <algorithm>

#include "option_parser.h"
#include "twinloft/mailbench/options.h"
#include "twinloft/mailbench/spool.h"

namespace twinloft::mailbench {

namespace {

po::options_description lda_description() {
  po::options_description d("Options of mailbench lda", 110, 60);
  auto o = d.add_options();
  o("command", po::value<std::string>(),
    "the agent's command, as in lmtpd.toml: '/usr/lib/dovecot/dovecot-lda -f %from% -d %user%'");
  o("value", po::value<Texts>()->composing(),
    "a value for a macro, and for HOME: home=/srv/mail/%d/%n (%u: the address); may be repeated");
  o("jobs,j", po::value<std::uint64_t>()->default_value(8), "programs at a time");
  add_lda_options(d);
  return d;
}

}  // namespace

std::string lda_help() {
  return usage_text(
      "Usage: mailbench lda --command TEMPLATE (--duration TIME | --messages N) [options]\n\n"
      "Runs the agent for each message, as a mail server would, and without one. The programs run as the "
      "user of\n"
      "mailbench: start it by setpriv(1) for another. Exit: 0 every run ended with 0; 1 some did not; 64 "
      "usage;\n"
      "66 no file of users or messages; 69 the program cannot be started; 73 the account cannot be "
      "created.\n\n",
      lda_description());
}

Result<LdaCommand> parse_lda(const std::vector<std::string>& arguments) {
  TL_TRY_ASSIGN(po::variables_map map, parse_arguments(lda_description(), arguments));
  LdaCommand c;
  c.help = map.count("help") > 0;
  if (c.help) return c;
  if (!map.count("command")) return fail(Errc::invalid, "name the agent's command: --command TEMPLATE");
  auto command = argv::Template::parse(text_option(map, "command"));
  if (!command) return fail(Errc::invalid, "--command:\n{}", command.error().rendered());
  c.lda.emplace(LdaOptions{.command = std::move(*command)});
  if (map.count("value")) {
    for (const std::string& pair : map["value"].as<Texts>()) {
      std::size_t sign = pair.find('=');
      if (sign == pair.npos || sign == 0) return fail(Errc::invalid, "--value '{}': write NAME=VALUE", pair);
      if (std::ranges::find(argv::mail_macros(), pair.substr(0, sign), &argv::MacroName::name) ==
          argv::mail_macros().end())
        return fail(Errc::invalid, "--value '{}': there is no macro %{}%", pair, pair.substr(0, sign));
      c.lda->values[pair.substr(0, sign)] = pair.substr(sign + 1);
    }
  }
  TL_TRY(fill_lda(map, c));
  TL_TRY_ASSIGN(c.load.clients, bounded(map, "jobs", 1, 1000));
  return c;
}

}  // namespace twinloft::mailbench
