#include "named_query.h"

#include <algorithm>
#include <utility>

namespace twinloft::lmtpd {

namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Skips a string, a quoted name or a comment that begins at `at`, and returns its end. `at`: none begins
// here. npos: it has no end.
std::size_t skip(std::string_view text, std::size_t at) {
  char c = text[at];
  std::string_view rest = text.substr(at);
  auto line_end = [&] { return std::min(text.find('\n', at), text.size()); };
  if (c == '#') return line_end();
  if (rest.starts_with("--") && (rest.size() == 2 || static_cast<unsigned char>(rest[2]) <= ' '))
    return line_end();
  if (rest.starts_with("/*")) {
    std::size_t end = text.find("*/", at + 2);
    return end == std::string_view::npos ? end : end + 2;
  }
  if (c != '\'' && c != '"' && c != '`') return at;
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\' && c != '`')
      ++i;
    else if (text[i] == c)
      return i + 1;  // a doubled quote counts as the start of another string
  }
  return std::string_view::npos;
}

// The last tokens of a query without its comments, and their depth in parentheses.
class Tokens {
 public:
  void add(char c) {
    if (is_word(c)) {
      if (!in_word_) before_ = std::exchange(last_, "");
      last_ += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      if (c == '(') depths_.push_back(depth() + (begins_select() ? 0 : 1));
      if (c == ')' && !depths_.empty()) depths_.pop_back();
      before_ = std::exchange(last_, std::string(1, c));
    }
    in_word_ = is_word(c);
  }
  void skip() { in_word_ = false; }  // a comment
  // Whether a "*" means all columns of the result, and not a product.
  bool expects_columns() const {
    constexpr std::string_view words[] = {"select",
                                          "distinct",
                                          "distinctrow",
                                          "all",
                                          "straight_join",
                                          "high_priority",
                                          "sql_no_cache",
                                          "sql_cache",
                                          "sql_small_result",
                                          "sql_big_result",
                                          "sql_buffer_result",
                                          "sql_calc_found_rows",
                                          ","};
    bool behind_number = !before_.empty() && before_.find_first_not_of("0123456789") == std::string::npos;
    return depth() == 0 && (std::find(std::begin(words), std::end(words), last_) != std::end(words) ||
                            (last_ == "." && !behind_number));
  }

 private:
  int depth() const { return depths_.empty() ? 0 : depths_.back(); }
  // A SELECT of the query itself or of a part of a union, not of a subquery.
  bool begins_select() const {
    static constexpr std::string_view words[] = {"", "(", "union", "except", "intersect"};
    auto is = [](const std::string& word) {
      return std::find(std::begin(words), std::end(words), word) != std::end(words);
    };
    return depth() == 0 &&
           (is(last_) || ((last_ == "all" || last_ == "distinct") && !before_.empty() && is(before_)));
  }
  std::string before_, last_;
  bool in_word_ = false;
  std::vector<int> depths_;
};

}  // namespace

Result<NamedQuery> parse_named_query(std::string_view text) {
  constexpr std::pair<std::string_view, QueryParameter> known[] = {{"user", QueryParameter::user},
                                                                   {"domain", QueryParameter::domain},
                                                                   {"address", QueryParameter::address}};
  NamedQuery out;
  Tokens tokens;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t behind = skip(text, at);
    if (behind == std::string_view::npos)
      return fail(Errc::invalid, "byte {}: a string, name or comment begins here, and has no end: {}", at + 1,
                  text.substr(at));
    if (behind > at) {
      bool is_comment = text[at] == '#' || text[at] == '-' || text[at] == '/';
      out.text += text.substr(at, behind - at);
      if (is_comment)
        tokens.skip();
      else
        tokens.add(text[at]);
      at = behind;
      continue;
    }
    if (text[at] == '?')
      return fail(Errc::invalid, "byte {}: a \"?\"; parameters have names: :user, :domain, :address", at + 1);
    if (text[at] == '*' && tokens.expects_columns())
      return fail(Errc::invalid,
                  "byte {}: name the columns instead of \"*\": after a change of the table, the query in use "
                  "would yield other columns",
                  at + 1);
    bool named = text[at] == ':' && at + 1 < text.size() && is_word(text[at + 1]) &&
                 (at == 0 || text[at - 1] != ':');
    tokens.add(text[at]);
    if (!named) {
      out.text += text[at++];
      continue;
    }
    std::size_t end = at + 1;
    while (end < text.size() && is_word(text[end])) ++end;
    std::string_view name = text.substr(at + 1, end - at - 1);
    auto found = std::find_if(std::begin(known), std::end(known),
                              [&](const auto& k) { return k.first == name; });
    if (found == std::end(known))
      return fail(Errc::invalid, "byte {}: unknown parameter :{}; known are :user, :domain and :address",
                  at + 1, name);
    out.text += '?';
    out.parameters.push_back(found->second);
    at = end;
  }
  if (out.parameters.empty())
    return fail(Errc::invalid,
                "it uses none of :user, :domain and :address, so that every address would be the same user");
  return out;
}

std::string one_line(std::string_view query) {
  std::string out;
  for (char c : query) {
    bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!blank)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string value_of(QueryParameter parameter, const UserKey& key) {
  return parameter == QueryParameter::user     ? key.local_part
         : parameter == QueryParameter::domain ? key.domain
                                               : key.address();
}

}  // namespace twinloft::lmtpd
