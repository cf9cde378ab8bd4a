#include "command_line.h"

#include <fmt/format.h>

#include "twinloft/base/suggest.h"
#include "twinloft/base/units.h"

namespace twinloft::repl::ctl {

Result<std::chrono::seconds> seconds_of(std::string_view option, std::string_view text,
                                        std::chrono::seconds least, std::chrono::seconds most) {
  auto given = parse_duration(text, BareNumber::seconds);
  if (!given) return fail(Errc::invalid, "{}: {}", option, given.error().message);
  auto whole = std::chrono::duration_cast<std::chrono::seconds>(*given);
  if (whole != *given || whole < least || whole > most)
    return fail(Errc::invalid, "{}: expected whole seconds from {} to {}, not \"{}\"", option, least.count(),
                most.count(), text);
  return whole;
}

int CommandLine::complain(const Error& error, int exit_code) const {
  fmt::print(stderr, "{}: {}\n", name, error.message);
  return exit_code;
}

std::string meant(std::string_view word, const std::vector<std::string>& names) {
  std::vector<std::string_view> known(names.begin(), names.end());
  auto nearest = nearest_word(word, known);
  return nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "";
}

int CommandLine::complain_usage(std::string_view what) const {
  fmt::print(stderr, "{}: {}\n{}", name, what, usage);
  return exit_usage;
}

std::optional<int> CommandLine::parse(const std::vector<std::string>& arguments,
                                      const po::options_description& known,
                                      const po::positional_options_description& positional) const {
  po::variables_map found;
  try {
    auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(known).positional(positional).style(style).run(),
              found);
    po::notify(found);
  } catch (const po::unknown_option& e) {
    std::vector<std::string> names;
    for (const auto& option : known.options()) names.push_back("--" + option->long_name());
    return complain_usage(e.what() + meant(e.get_option_name(), names));
  } catch (const po::error& e) {
    return complain_usage(e.what());
  }
  if (!found.contains("help")) return std::nullopt;
  fmt::print("{}", usage);
  return exit_ok;
}

}  // namespace twinloft::repl::ctl
