#include "twinloft/lmtpd/sieve/script_path.h"

#include <algorithm>
#include <cctype>

namespace twinloft::lmtpd {

namespace {

std::string_view without_blanks(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool has_parent_part(std::string_view path) {
  return (std::string("/") + std::string(path) + "/").find("/../") != std::string::npos;
}

std::string in_lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

// The text between "%{" and "}": a name, and filters after "|".
Result<ScriptPath::Part> ScriptPath::parse_long_variable(std::string_view name) {
  Part part;
  bool first = true;
  for (std::string_view rest = name; first || !rest.empty();) {
    std::string_view word = without_blanks(rest.substr(0, rest.find('|')));
    rest.remove_prefix(
        std::min(rest.size(), rest.find('|') == std::string_view::npos ? rest.size() : rest.find('|') + 1));
    if (first && word == "user")
      part.what = What::user;
    else if ((first || part.what == What::user) && word == "username")
      part.what = What::username;
    else if ((first || part.what == What::user) && word == "domain")
      part.what = What::domain;
    else if (first && word == "home")
      part.what = What::home;
    else if (!first && word == "lower")
      part.lower = true;
    else
      return fail(Errc::invalid, "lmtpd does not support %{{{}}}", name);
    first = false;
  }
  return part;
}

// rest: after the "%". Takes the variable from its start.
Result<ScriptPath::Part> ScriptPath::parse_variable(std::string_view& rest) {
  Part part;
  std::string_view all = rest.substr(0, 3);
  if (rest.starts_with("L")) part.lower = true, rest.remove_prefix(1);
  if (rest.starts_with("{")) {
    std::size_t end = rest.find('}');
    if (end == std::string_view::npos) return fail(Errc::invalid, "%{{ without }}");
    TL_TRY_ASSIGN(Part found, parse_long_variable(rest.substr(1, end - 1)));
    found.lower = found.lower || part.lower;
    rest.remove_prefix(end + 1);
    return found;
  }
  char letter = rest.empty() ? '\0' : rest.front();
  switch (letter) {
    case 'u':
      part.what = What::user;
      break;
    case 'n':
      part.what = What::username;
      break;
    case 'd':
      part.what = What::domain;
      break;
    case 'h':
      part.what = What::home;
      break;
    case '%':
      part.text = "%";
      break;
    default:
      return fail(Errc::invalid, "lmtpd does not support the variable at %{}", all);
  }
  rest.remove_prefix(1);
  return part;
}

Result<ScriptPath> ScriptPath::parse(std::string_view text, bool lower_names) {
  ScriptPath out;
  out.lower_names_ = lower_names;
  if (text.empty()) return fail(Errc::invalid, "the path is empty");
  if (has_parent_part(text)) return fail(Errc::invalid, "the path {} has a part \"..\"", text);
  const std::string_view whole = text;
  if (text == "~" || text.starts_with("~/")) {
    out.parts_.push_back({What::home});
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    std::size_t percent = std::min(text.find('%'), text.size());
    if (percent > 0) out.parts_.push_back({What::literal, std::string(text.substr(0, percent))});
    text.remove_prefix(percent);
    if (text.empty()) break;
    text.remove_prefix(1);
    auto part = parse_variable(text);
    if (!part) return fail(Errc::invalid, "the path {}: {}", whole, part.error().message);
    if (part->what == What::home && part->lower)
      return fail(Errc::invalid, "the path {}: lmtpd does not change the case of a home", whole);
    out.parts_.push_back(std::move(*part));
  }
  out.relative_ = out.parts_.front().what != What::home && whole.front() != '/';
  if (out.relative_)
    out.parts_.insert(out.parts_.begin(), std::initializer_list<Part>{{What::home}, {What::literal, "/"}});
  return out;
}

// nullopt: a name that would be several parts of the path, or another directory.
std::optional<std::string> ScriptPath::value_of(const Part& part, const User& user) const {
  const std::string& name = user.name;
  const std::size_t at = std::min(name.rfind('@'), name.size());
  std::string value;
  switch (part.what) {
    case What::literal:
      return part.text;
    case What::home:
      return user.home;
    case What::user:
      value = name;
      break;
    case What::username:
      value = name.substr(0, at);
      break;
    case What::domain:
      value = name.substr(std::min(at + 1, name.size()));
      break;
  }
  // Dovecot ends the name at the first "@".
  if (part.what != What::user && at < name.size() && name.find('@') != at) return std::nullopt;
  bool fits = value.find('/') == std::string::npos && value.find('\0') == std::string::npos && value != "." &&
              value != "..";
  if (!fits) return std::nullopt;
  return part.lower || lower_names_ ? in_lower_case(std::move(value)) : value;
}

std::optional<std::string> ScriptPath::expand(const User& user) const {
  std::string out;
  for (const Part& part : parts_) {
    auto value = value_of(part, user);
    if (!value) return std::nullopt;
    out += *value;
  }
  // Such as of "/var/.%d./x", where the domain is empty.
  if (out.find("/../") != std::string::npos || out.ends_with("/..")) return std::nullopt;
  return out;
}

std::string ScriptPath::base(const User& user) const {
  if (parts_.front().what == What::home) return user.home;
  const std::string& text = parts_.front().text;
  return text.substr(0, std::max<std::size_t>(text.rfind('/'), 1));
}

bool ScriptPath::uses_names() const {
  return std::ranges::any_of(parts_,
                             [](const Part& p) { return p.what != What::literal && p.what != What::home; });
}

}  // namespace twinloft::lmtpd
