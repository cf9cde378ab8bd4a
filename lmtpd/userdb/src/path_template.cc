#include "path_template.h"

#include <algorithm>
#include <cctype>

#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

// Names the equivalent of one of Dovecot's one-letter variables. `text` follows a "%". Empty: not such a
// variable.
std::string dovecot_hint(std::string_view text) {
  if (text.empty() ||
      (text.size() > 1 && (std::isalnum(static_cast<unsigned char>(text[1])) || text[1] == '_')))
    return {};
  switch (text[0]) {
    case 'd':
      return "Dovecot's %d is %domain% here";
    case 'n':
      return "Dovecot's %n is %user% here";
    case 'u':
      return "Dovecot's %u is %name% here, or %user%@%domain%";
    case 'h':
      return "Dovecot's %h is %home% here";
    default:
      return {};
  }
}

}  // namespace

Result<PathTemplate> PathTemplate::parse(const char* key, std::string_view text, Part last) {
  PathTemplate out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t percent = std::min(text.find('%', at), text.size());
    if (percent > at) out.parts_.push_back({Part::literal, std::string(text.substr(at, percent - at))});
    if (percent == text.size()) break;
    if (std::string hint = dovecot_hint(text.substr(percent + 1)); !hint.empty())
      return fail(Errc::invalid, "{}: column {}: {}", key, percent + 1, hint);
    std::size_t end = text.find('%', percent + 1);
    if (end == std::string_view::npos)
      return fail(Errc::invalid, "{}: column {}: a lone \"%\"; write \"%%\" for a percent sign", key,
                  percent + 1);
    TL_TRY(out.add_macro(key, text.substr(percent + 1, end - percent - 1), percent + 1, last));
    at = end + 1;
  }
  return out;
}

namespace {
constexpr std::string_view macros[] = {"", "user", "domain", "name", "home"};  // by Part
}

Status PathTemplate::add_macro(const char* key, std::string_view macro, std::size_t column, Part last) {
  std::string known;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (macro == macros[i]) {
      parts_.push_back({static_cast<Part>(i), i == 0 ? "%" : ""});
      return {};
    }
    if (i > 0)
      known += (i == 1 ? "%" : i == static_cast<int>(last) ? " and %" : ", %") + std::string(macros[i]) + "%";
  }
  return fail(Errc::invalid, "{}: column {}: unknown macro %{}%; known are {}", key, column, macro, known);
}

const std::string& PathTemplate::value_of(Part part, const std::string& literal, const Values& values) {
  switch (part) {
    case Part::literal:
      return literal;
    case Part::user:
      return values.user;
    case Part::domain:
      return values.domain;
    case Part::name:
      return values.name;
    case Part::home:
      return values.home;
  }
  return literal;
}

std::string PathTemplate::expand(const Values& values) const {
  std::string out;
  for (const auto& [part, text] : parts_) out += value_of(part, text, values);
  return out;
}

bool PathTemplate::uses_domain() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& p) { return p.first == Part::domain; });
}

bool PathTemplate::fits(const Values& values) const {
  return std::all_of(parts_.begin(), parts_.end(), [&](const auto& p) {
    return p.first == Part::literal || p.first == Part::home ||
           fits_path(value_of(p.first, p.second, values));
  });
}

}  // namespace twinloft::lmtpd
