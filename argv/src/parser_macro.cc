// Macros: %name%, %name:lower%, %name:upper%, %name:-default%, %name:lower:-default%, and %%.
#include <algorithm>

#include "parser.h"

namespace twinloft::argv {
namespace {

bool name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool name_byte(char c) {
  return name_start(c) || (c >= '0' && c <= '9');
}

// The macro with the meaning of Dovecot's variable of one letter.
std::string_view name_for_dovecots(std::string_view letter) {
  if (letter == "u" || letter == "n") return "user";
  if (letter == "d") return "domain";
  if (letter == "h") return "home";
  return {};
}

// Messages are short for any template, since the C interface has fixed room for them.
constexpr std::size_t kShownNameMax = 40;
constexpr std::size_t kShownListMax = 200;

}  // namespace

bool Parser::macro(bool in_double_quotes) {
  const std::size_t percent = at_;
  if (peek(1) == '%') {
    literal('%', percent);
    at_ += 2;
    return true;
  }
  const std::string_view name = name_at(percent + 1);
  if (name.empty()) return fail(percent, "a lone '%': write %% for a percent sign, %name% for a macro");
  if (const std::string_view own = name_for_dovecots(name); find(own) != nullptr)
    return fail(percent, "Dovecot's %" + std::string(name) + " is %" + std::string(own) +
                             "% here; write %% for a percent sign");
  const std::string shown = "%" + std::string(name.substr(0, kShownNameMax)) +
                            (name.size() > kShownNameMax ? "..." : "");
  at_ = percent + 1 + name.size();
  if (peek() != '%' && peek() != ':')
    return fail(percent, "this macro is not closed: write " + shown + "%, or %% for a percent sign");
  const MacroName* known = find(name);
  if (known == nullptr) return fail(percent, "unknown macro " + shown + "%; known are " + known_names());

  Part part;
  part.kind = Part::Kind::macro;
  part.name = known->name;
  part.per_recipient = known->per_recipient;
  part.offset = percent;
  if (peek() == ':' && !macro_modifiers(part, percent, in_double_quotes)) return false;
  ++at_;  // the closing percent sign
  if (!result_.uses(part.name)) result_.macros_.push_back(part.name);
  word_.parts.push_back(std::move(part));
  return true;
}

// At the ':' after the name; leaves at_ on the closing '%'.
bool Parser::macro_modifiers(Part& part, std::size_t percent, bool in_double_quotes) {
  if (peek(1) != '-') {
    const std::size_t start = at_ + 1;
    const std::string_view fold = name_at(start);
    if (fold != "lower" && fold != "upper")
      return fail(start, "unknown modifier; known are :lower, :upper and :-default text");
    part.fold = fold == "lower" ? Fold::lower : Fold::upper;
    at_ = start + fold.size();
    if (peek() == '%' && more()) return true;
    if (peek() != ':') return fail(percent, "this macro is not closed: '%' is missing after the modifier");
    if (peek(1) != '-') return fail(at_ + 1, "only a default (:-text) may follow :lower or :upper");
  }
  at_ += 2;
  part.has_default = true;
  return default_text(part, percent, in_double_quotes);
}

// The text is quoted as the text around it, and contains no macro.
bool Parser::default_text(Part& part, std::size_t percent, bool in_double_quotes) {
  while (more() && peek() != '%') {
    const char c = peek();
    if (c == '\\') {
      if (!escaped(&part.text, in_double_quotes)) return false;
      continue;
    }
    if (c == '"' && in_double_quotes) break;
    if (!in_double_quotes && (c == '"' || c == '\'' || blank_at(at_)))
      return fail(at_, "a blank or a quote in a default text: put the whole macro into double quotes");
    part.text.push_back(c);
    ++at_;
  }
  if (more() && peek() == '%') return true;
  return fail(percent, "this macro is not closed: '%' is missing after the default text");
}

std::string_view Parser::name_at(std::size_t at) const {
  std::size_t end = at;
  if (end < text_.size() && name_start(text_[end]))
    while (end < text_.size() && name_byte(text_[end])) ++end;
  return text_.substr(std::min(at, text_.size()), end - at);
}

const MacroName* Parser::find(std::string_view name) const {
  for (const MacroName& m : options_.macros)
    if (m.name == name) return &m;
  return nullptr;
}

std::string Parser::known_names() const {
  std::string out;
  for (const MacroName& m : options_.macros) {
    if (out.size() + m.name.size() > kShownListMax) return out + " ...";
    out += (out.empty() ? "" : " ") + m.name;
  }
  return out.empty() ? "none" : out;
}

}  // namespace twinloft::argv
