#include "named_query.h"

#include <algorithm>

namespace twinloft::lmtpd {

namespace {

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// Behind what begins here and is to be left as it is; `at` where nothing does; npos: it has no end.
std::size_t skip(std::string_view text, std::size_t at) {
  char c = text[at];
  std::string_view rest = text.substr(at);
  auto line_end = [&] { return std::min(text.find('\n', at), text.size()); };
  if (c == '#') return line_end();
  if (rest.starts_with("--") && (rest.size() == 2 || static_cast<unsigned char>(rest[2]) <= ' ')) return line_end();
  if (rest.starts_with("/*")) {
    std::size_t end = text.find("*/", at + 2);
    return end == std::string_view::npos ? end : end + 2;
  }
  if (c != '\'' && c != '"' && c != '`') return at;
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\' && c != '`') ++i;
    else if (text[i] == c) return i + 1;  // a doubled one begins another string, which is as good
  }
  return std::string_view::npos;
}

// Whether a "*" behind this is all columns, and no product.
bool is_before_columns(std::string_view text) {
  std::size_t end = text.find_last_not_of(" \t\r\n") + 1;
  if (end == 0) return false;
  if (text[end - 1] == ',' || text[end - 1] == '.') return true;
  std::size_t begin = end;
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  std::string word(text.substr(begin, end - begin));
  for (char& c : word) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return word == "select" || word == "distinct" || word == "all";
}

}  // namespace

Result<NamedQuery> parse_named_query(std::string_view text) {
  constexpr std::pair<std::string_view, QueryParameter> known[] = {
      {"user", QueryParameter::user}, {"domain", QueryParameter::domain}, {"address", QueryParameter::address}};
  NamedQuery out;
  int depth = 0;  // of parentheses
  for (std::size_t at = 0; at < text.size();) {
    std::size_t behind = skip(text, at);
    if (behind == std::string_view::npos) return fail(Errc::invalid, "byte {}: what begins here has no end: {}", at + 1, text.substr(at));
    if (behind > at) {
      out.text += text.substr(at, behind - at);
      at = behind;
      continue;
    }
    if (text[at] == '?') return fail(Errc::invalid, "byte {}: a \"?\"; parameters have names: :user, :domain, :address", at + 1);
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    if (text[at] == '*' && depth == 0 && is_before_columns(out.text))
      return fail(Errc::invalid, "byte {}: name the columns instead of \"*\": while the query is in use a change of the table would put others in their places", at + 1);
    bool named = text[at] == ':' && at + 1 < text.size() && is_word(text[at + 1]) && (at == 0 || text[at - 1] != ':');
    if (!named) {
      out.text += text[at++];
      continue;
    }
    std::size_t end = at + 1;
    while (end < text.size() && is_word(text[end])) ++end;
    std::string_view name = text.substr(at + 1, end - at - 1);
    auto found = std::find_if(std::begin(known), std::end(known), [&](const auto& k) { return k.first == name; });
    if (found == std::end(known)) return fail(Errc::invalid, "byte {}: unknown parameter :{}; known are :user, :domain and :address", at + 1, name);
    out.text += '?';
    out.parameters.push_back(found->second);
    at = end;
  }
  if (out.parameters.empty()) return fail(Errc::invalid, "it uses none of :user, :domain and :address, so that every address would be the same user");
  return out;
}

std::string one_line(std::string_view query) {
  std::string out;
  for (char c : query) {
    bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!blank) out += c;
    else if (!out.empty() && out.back() != ' ') out += ' ';
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string value_of(QueryParameter parameter, const UserKey& key) {
  return parameter == QueryParameter::user ? key.local_part : parameter == QueryParameter::domain ? key.domain : key.address();
}

}  // namespace twinloft::lmtpd
