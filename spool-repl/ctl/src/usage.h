// What `spool-repl --help` and `spool-repl COMMAND --help` print, and which options a command has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace twinloft::repl::ctl {

// Of the command; of the whole program where there is no such command.
std::string usage_of(std::string_view command);

// Whether the command has this option, beside --config, --help and --version. False for what is no command.
bool takes_option(std::string_view command, std::string_view option);
bool is_command(std::string_view command);
std::vector<std::string> command_names();

}  // namespace twinloft::repl::ctl
