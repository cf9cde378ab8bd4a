#include "twinloft/lmtpd/sieve/doveconf_output.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace twinloft::lmtpd {

namespace {

constexpr std::string_view between = " = ";
constexpr std::size_t depth_max = 32;

std::string_view trimmed(std::string_view text) {
  std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string unquoted(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return std::string(text);
}

// `kind "name" {`. A value may end with "{" too.
bool begins_section(std::string_view line) {
  return line.ends_with('{') && line.find(between) == std::string_view::npos;
}

DoveconfSection section_of(std::string_view line) {
  line = trimmed(line.substr(0, line.size() - 1));
  std::size_t blank = std::min(line.find(' '), line.size());
  return {std::string(line.substr(0, blank)), unquoted(trimmed(line.substr(blank)))};
}

void read_value(std::string_view line, DoveconfSection& into) {
  std::size_t equals = line.find(" =");
  if (equals == std::string_view::npos) return;
  std::string_view rest = line.substr(equals + 2);
  if (!rest.empty() && rest.front() != ' ') return;
  into.values[std::string(trimmed(line.substr(0, equals)))] = unquoted(trimmed(rest));
}

}  // namespace

std::string DoveconfSection::value(const std::string& setting) const {
  auto at = values.find(setting);
  return at == values.end() ? std::string() : at->second;
}

const DoveconfSection* DoveconfSection::find(std::string_view wanted_kind,
                                             std::string_view wanted_name) const {
  auto at = std::ranges::find_if(
      sections, [&](const DoveconfSection& s) { return s.kind == wanted_kind && s.name == wanted_name; });
  return at == sections.end() ? nullptr : &*at;
}

bool DoveconfSection::lists(const std::string& list, std::string_view word) const {
  std::istringstream words(value(list));
  for (std::string one; words >> one;)
    if (one == word) return true;
  const DoveconfSection* section = find(list, "");
  return section && section->value(std::string(word)) == "yes";
}

Result<DoveconfOutput> parse_doveconf(std::string_view text) {
  DoveconfOutput out;
  if (std::sscanf(std::string(text.substr(0, text.find('\n'))).c_str(), "# %d.%d", &out.major, &out.minor) !=
      2)
    return fail(Errc::invalid, "doveconf does not print its version");
  std::vector<DoveconfSection> open(1);  // the sections around the present line
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = trimmed(line);
    if (line.empty() || line.front() == '#') continue;
    if (begins_section(line)) {
      if (open.size() == depth_max)
        return fail(Errc::invalid, "doveconf prints more than {} sections within each other", depth_max);
      open.push_back(section_of(line));
    } else if (line == "}") {
      if (open.size() == 1)
        return fail(Errc::invalid, "doveconf prints the end of a section that has no begin");
      DoveconfSection ended = std::move(open.back());
      open.pop_back();
      open.back().sections.push_back(std::move(ended));
    } else {
      read_value(line, open.back());
    }
  }
  if (open.size() != 1)
    return fail(Errc::invalid, "doveconf prints a section without its end: {}", open.back().kind);
  out.root = std::move(open.front());
  return out;
}

}  // namespace twinloft::lmtpd
