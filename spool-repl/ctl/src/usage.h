// The output of `spool-repl --help` and `spool-repl COMMAND --help`, and the options of each command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace twinloft::repl::ctl {

// The usage of the command. For an unknown command, of the whole program.
std::string usage_of(std::string_view command);

// Whether the command has this option, besides --config, --help and --version. False for an unknown command.
bool takes_option(std::string_view command, std::string_view option);
bool is_command(std::string_view command);
std::vector<std::string> command_names();

}  // namespace twinloft::repl::ctl
