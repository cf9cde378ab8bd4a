// `spool-repl salvage`: selects its part.
#include <fmt/format.h>

#include "command_line.h"
#include "commands.h"

namespace twinloft::repl::ctl {

namespace {

constexpr const char* usage_text =
    "usage: spool-repl salvage extract VOLUME [options]   on the loser: put the mail of after the parting "
    "into a bundle\n"
    "       spool-repl salvage deliver [options]          on the winner: deliver the mail of a bundle\n"
    "\n"
    "Each says more with --help.\n";

}  // namespace

int salvage_command(const std::vector<std::string>& arguments) {
  auto word = arguments.begin();  // options may come before it, such as --config FILE
  while (word != arguments.end() && word->starts_with("-") && *word != "--help" && *word != "-h")
    word += *word == "--config" && word + 1 != arguments.end() ? 2 : 1;
  std::string what = word == arguments.end() ? "" : *word;
  std::vector<std::string> rest(arguments.begin(), word);
  if (word != arguments.end()) rest.insert(rest.end(), word + 1, arguments.end());
  if (what == "extract") return salvage_extract(rest);
  if (what == "deliver") return salvage_deliver(rest);
  bool help = what == "--help" || what == "-h";
  if (what.empty())
    fmt::print(stderr, "spool-repl salvage: a command is missing\n");
  else if (!help)
    fmt::print(stderr, "spool-repl salvage: unknown command \"{}\"{}\n", what,
               meant(what, {"extract", "deliver"}));
  fmt::print(help ? stdout : stderr, "{}", usage_text);
  return help ? exit_ok : exit_usage;
}

}  // namespace twinloft::repl::ctl
