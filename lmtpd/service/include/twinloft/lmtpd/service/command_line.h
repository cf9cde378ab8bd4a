// The command lines of the programs: a command, perhaps with an argument, and a configuration file.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

struct Subcommand {
  std::string_view name;
  const char* help;
  std::string_view argument = {};  // its name, if the command needs one: "ADDRESS"
};

struct Program {
  std::string_view name;
  const char* usage;
  std::span<const Subcommand> subcommands;
  std::string_view serves;  // the command that "--config FILE" alone means
};

struct CommandLine {
  std::string command;
  std::string argument;
  std::string file;
};

// Writes errors, help and the version. Returns an exit code if there is nothing more to do: 0, or 64
// (EX_USAGE). An option may not be abbreviated: an option added later must not change the meaning of a
// script.
std::expected<CommandLine, int> read_command_line(const Program& program, std::span<const std::string> args,
                                                  const char* version);

// The whole of main(): an exception of `run` is written, and becomes EX_SOFTWARE.
int run_program(std::string_view name, int argc, char** argv,
                const std::function<int(const std::vector<std::string>& args)>& run);

// Writes the error and the usage. Returns EX_USAGE.
int usage_error(const Program& program, const std::string& what);

}  // namespace twinloft::lmtpd
