// `spool-repl salvage`: which part of it is asked for.
#include <fmt/format.h>

#include "commands.h"

namespace twinloft::repl::ctl {

namespace {

constexpr const char* usage_text =
    "usage: spool-repl salvage extract VOLUME [options]   on the loser: put the mail of after the parting into a bundle\n"
    "       spool-repl salvage deliver [options]          on the winner: deliver the mail of a bundle\n"
    "\n"
    "Each says more with --help.\n";

}  // namespace

int salvage_command(const std::vector<std::string>& arguments) {
  std::string what = arguments.empty() ? "" : arguments.front();
  std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (what == "extract") return salvage_extract(rest);
  if (what == "deliver") return salvage_deliver(rest);
  bool help = what == "--help";
  fmt::print(help ? stdout : stderr, "{}", usage_text);
  return help ? exit_ok : exit_usage;
}

}  // namespace twinloft::repl::ctl
