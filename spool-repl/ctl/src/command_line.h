// A command of spool-repl that has options of its own.
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

// "300", "300s", "5min": whole seconds, from `least` to `most`. Errors: the option's name and what was
// expected.
Result<std::chrono::seconds> seconds_of(std::string_view option, std::string_view text,
                                        std::chrono::seconds least, std::chrono::seconds most);

// "; did you mean ...?" with the nearest of `names`; empty: none is near.
std::string meant(std::string_view word, const std::vector<std::string>& names);

struct CommandLine {
  const char* name;   // "spool-repl journal"
  const char* usage;  // what --help prints

  int complain(const Error& error, int exit_code) const;  // returns `exit_code`
  int complain_usage(std::string_view what) const;

  // Reads `arguments` into what `known` names, `--help` among it; only whole names of options count. An exit
  // code where there is nothing more to do.
  std::optional<int> parse(const std::vector<std::string>& arguments, const po::options_description& known,
                           const po::positional_options_description& positional = {}) const;
};

}  // namespace twinloft::repl::ctl
