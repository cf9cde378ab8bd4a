// What the command lines of all commands share: strict parsing, and numbers and times with limits.
#pragma once

#include <boost/program_options.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/mailbench/options.h"

namespace twinloft::mailbench {

namespace po = boost::program_options;
using Texts = std::vector<std::string>;

// No abbreviations, since a later option would change the meaning of a script. positional: the option that
// takes arguments without a name; empty: there are none. Errors: Errc::invalid.
Result<po::variables_map> parse_arguments(const po::options_description& description, const Texts& arguments,
                                          const std::string& positional = "");
// Boost reads "-1" into an unsigned type as a huge number, so every number has a maximum.
Result<std::uint64_t> bounded(const po::variables_map& map, const char* name, std::uint64_t low,
                              std::uint64_t high);
Result<Duration> duration_option(const po::variables_map& map, const char* name);
std::string text_option(const po::variables_map& map, const char* name);  // empty: not given
// One of the words. Errors: Errc::invalid with all of them.
Result<std::size_t> word_option(const po::variables_map& map, const char* name,
                                std::span<const std::string_view> words);
// The options that `load` and `lda` have in common.
void add_lda_options(po::options_description& description);
Status fill_lda(const po::variables_map& map, RunCommand& command);
std::string usage_text(std::string_view head, const po::options_description& description);
// A value for an SMTP command: no blanks, line ends or angle brackets.
Status check_word(std::string_view word);
bool is_run_id(std::string_view run);

}  // namespace twinloft::mailbench
