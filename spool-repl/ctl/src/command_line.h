// The command line of a command of spool-repl with its own options.
#pragma once

#include <boost/program_options.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "twinloft/base/result.h"

namespace twinloft::repl::ctl {

namespace po = boost::program_options;

// Parses "300", "300s" or "5min" as whole seconds, from `least` to `most`. Errors: with the option's name
// and the expected form.
Result<std::chrono::seconds> seconds_of(std::string_view option, std::string_view text,
                                        std::chrono::seconds least, std::chrono::seconds most);

// Returns "; did you mean ...?" with the nearest of `names`. Empty: no name is near.
std::string meant(std::string_view word, const std::vector<std::string>& names);

struct CommandLine {
  const char* name;   // "spool-repl journal"
  const char* usage;  // the text of --help

  int complain(const Error& error, int exit_code) const;  // returns `exit_code`
  int complain_usage(std::string_view what) const;

  // Reads `arguments` into the variables of `known`, with `--help`. Options must be complete names. Returns
  // an exit code if the command is complete.
  std::optional<int> parse(const std::vector<std::string>& arguments, const po::options_description& known,
                           const po::positional_options_description& positional = {}) const;
};

}  // namespace twinloft::repl::ctl
