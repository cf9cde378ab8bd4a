#include "option_parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "twinloft/base/suggest.h"
#include "twinloft/base/units.h"

namespace twinloft::mailbench {

Result<po::variables_map> parse_arguments(const po::options_description& description, const Texts& arguments,
                                          const std::string& positional) {
  try {
    po::variables_map map;
    auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::positional_options_description places;
    if (!positional.empty()) places.add(positional.c_str(), -1);
    po::store(po::command_line_parser(arguments).options(description).positional(places).style(style).run(),
              map);
    return map;
  } catch (const po::unknown_option& e) {
    std::vector<std::string> names;
    for (const auto& option : description.options()) names.push_back("--" + option->long_name());
    std::vector<std::string_view> known(names.begin(), names.end());
    auto nearest = nearest_word(e.get_option_name(), known);
    return fail(Errc::invalid, "there is no option {}{}", e.get_option_name(),
                nearest ? fmt::format("; did you mean \"{}\"?", *nearest) : "");
  } catch (const po::error& e) {
    return fail(Errc::invalid, "{}", e.what());
  }
}

Result<std::uint64_t> bounded(const po::variables_map& map, const char* name, std::uint64_t low,
                              std::uint64_t high) {
  auto value = map[name].as<std::uint64_t>();
  if (value < low || value > high) return fail(Errc::invalid, "--{} is {} to {}", name, low, high);
  return value;
}

Result<Duration> duration_option(const po::variables_map& map, const char* name) {
  auto parsed = parse_duration(map[name].as<std::string>(), BareNumber::seconds);
  if (!parsed) return fail(Errc::invalid, "--{}: {}", name, parsed.error().message);
  return parsed;
}

std::string text_option(const po::variables_map& map, const char* name) {
  return map.count(name) ? map[name].as<std::string>() : "";
}

Result<std::size_t> word_option(const po::variables_map& map, const char* name,
                                std::span<const std::string_view> words) {
  std::string given = text_option(map, name);
  auto found = std::ranges::find(words, given);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  return fail(Errc::invalid, "--{} is {}, not '{}'", name, fmt::join(words, " or "), given);
}

std::string usage_text(std::string_view head, const po::options_description& description) {
  std::ostringstream out;
  out << head << description;
  return out.str();
}

Status check_word(std::string_view word) {
  if (word.find_first_of(" \t\r\n<>") != word.npos)
    return fail(Errc::invalid, "'{}' has blanks, line ends or <> in it", word);
  return {};
}

bool is_run_id(std::string_view run) {
  return std::ranges::all_of(run, [](unsigned char c) { return std::isalnum(c) || c == '.'; }) &&
         !run.empty() && run.size() <= 40;
}

}  // namespace twinloft::mailbench
