#include "twinloft/mailbench/imap_response.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace twinloft::mailbench {

namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

// The size of the literal that a line announces at its end: {N} or {N+}, perhaps after ~ (RFC 3516).
std::optional<std::uint64_t> announced(std::string_view line) {
  std::size_t open = line.rfind('{');
  if (!line.ends_with('}') || open == line.npos) return std::nullopt;
  std::string_view digits = line.substr(open + 1, line.size() - open - 2);
  if (digits.ends_with('+')) digits.remove_suffix(1);
  std::uint64_t size = 0;
  auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (ec != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;  // the end of a text
  return size;
}

// Status responses end in a text for people (RFC 3501 section 7.1), and so do those with a tag.
bool has_free_text(std::string_view text) {
  if (!text.starts_with('*')) return true;
  text.remove_prefix(std::min<std::size_t>(2, text.size()));
  std::string_view first = text.substr(0, text.find_first_of(" \r\n"));
  return std::ranges::any_of(std::initializer_list<std::string_view>{"OK", "NO", "BAD", "BYE", "PREAUTH"},
                             [&](std::string_view status) { return same_word(first, status); });
}

}  // namespace

Result<bool> ImapResponseParser::feed(std::string_view& bytes) {
  if (complete_) {
    response_ = {};
    line_start_ = 0;
    literal_bytes_ = 0;
    complete_ = false;
  }
  while (!bytes.empty()) {
    if (literal_left_) {
      std::uint64_t taken = std::min<std::uint64_t>(*literal_left_, bytes.size());
      response_.literals.back().append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      if ((*literal_left_ -= taken) > 0) return false;
      literal_left_.reset();
      line_start_ = response_.text.size();
      continue;
    }
    std::size_t lf = bytes.find('\n');
    std::size_t taken = lf == bytes.npos ? bytes.size() : lf + 1;
    response_.text.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (response_.text.size() > kLineMax)
      return fail(Errc::corrupt, "the server's response is longer than 1 MiB");
    if (lf == bytes.npos) return false;
    TL_TRY(end_line());
    if (complete_) return true;
  }
  return false;
}

// The text ends in LF. Either a literal follows, or the response is complete.
Status ImapResponseParser::end_line() {
  std::string& text = response_.text;
  std::string_view line = std::string_view(text).substr(line_start_);
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  std::optional<std::uint64_t> size = has_free_text(text) ? std::nullopt : announced(line);
  if (size && (*size > kLiteralMax || literal_bytes_ + *size > kLiteralMax ||
               response_.literals.size() == kLiteralsMax))
    return fail(Errc::corrupt, "the server announces a literal of {} bytes, as number {} of a response",
                *size, response_.literals.size() + 1);
  if (!size) {
    text.resize(line_start_ + line.size());
    complete_ = true;
    return {};
  }
  response_.literals.emplace_back();
  literal_bytes_ += *size;
  if (*size > 0)
    literal_left_ = *size;
  else
    line_start_ = text.size();
  return {};
}

namespace {

class Tokenizer {
 public:
  explicit Tokenizer(ImapResponse&& response) : response_(std::move(response)), rest_(response_.text) {}

  Result<std::vector<ImapToken>> run() {
    while (!rest_.empty()) {
      char c = rest_.front();
      if (c == ' ')
        rest_.remove_prefix(1);
      else if (c == '(' || c == ')')
        take(c == '(' ? ImapToken::Kind::open : ImapToken::Kind::close, 1);
      else if (c == '"')
        TL_TRY(take_quoted());
      else if (c == '{' || rest_.starts_with("~{"))
        TL_TRY(take_literal());
      else
        take_atom();
    }
    return std::move(tokens_);
  }

 private:
  void take(ImapToken::Kind kind, std::size_t size) {
    tokens_.push_back({kind, std::string(rest_.substr(0, size))});
    rest_.remove_prefix(size);
  }
  // BODY[HEADER.FIELDS (TO)] is one atom: brackets hold blanks and parentheses together.
  void take_atom() {
    std::size_t size = 0;
    for (int depth = 0; size < rest_.size(); ++size) {
      char c = rest_[size];
      depth += (c == '[') - (c == ']');
      if (depth <= 0 && (c == ' ' || c == '(' || c == ')')) break;
    }
    take(ImapToken::Kind::atom, std::max<std::size_t>(size, 1));
  }
  Status take_quoted() {
    std::string out;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        tokens_.push_back({ImapToken::Kind::string, std::move(out)});
        rest_.remove_prefix(i + 1);
        return {};
      }
      if (rest_[i] == '\\' && i + 1 < rest_.size()) ++i;
      out += rest_[i];
    }
    return fail(Errc::corrupt, "the server sent a string without an end");
  }
  Status take_literal() {
    std::size_t lf = rest_.find('\n');
    if (lf == rest_.npos || next_literal_ == response_.literals.size())
      return fail(Errc::corrupt, "the server sent '{}' where a literal belongs", rest_.substr(0, 40));
    tokens_.push_back({ImapToken::Kind::string, std::move(response_.literals[next_literal_++])});
    rest_.remove_prefix(lf + 1);
    return {};
  }

  ImapResponse response_;
  std::string_view rest_;
  std::size_t next_literal_ = 0;
  std::vector<ImapToken> tokens_;
};

// The third word of "* 5 FETCH ..." or the second of "* LIST ...". Empty: none.
std::string_view word(std::string_view text, int index) {
  for (; index > 0; --index) {
    std::size_t blank = text.find(' ');
    if (blank == text.npos) return {};
    text.remove_prefix(blank + 1);
  }
  return text.substr(0, text.find_first_of(" \r\n"));
}

}  // namespace

Result<std::vector<ImapToken>> imap_tokens(ImapResponse&& response) {
  return Tokenizer(std::move(response)).run();
}

Result<std::optional<ImapFetched>> imap_fetched(ImapResponse&& response) {
  if (!response.text.starts_with("* ") || !same_word(word(response.text, 2), "FETCH")) return std::nullopt;
  TL_TRY_ASSIGN(std::vector<ImapToken> tokens, imap_tokens(std::move(response)));
  ImapFetched out;
  const std::string& number = tokens[1].text;
  std::from_chars(number.data(), number.data() + number.size(), out.number);
  for (std::size_t i = 3; i + 1 < tokens.size(); ++i) {
    if (tokens[i].kind != ImapToken::Kind::atom || !same_word(tokens[i].text, "BODY[]")) continue;
    if (tokens[i + 1].kind == ImapToken::Kind::string) out.content = std::move(tokens[i + 1].text);
    return out;
  }
  return std::nullopt;  // such as a change of flags
}

Result<std::optional<std::string>> imap_listed(ImapResponse&& response) {
  if (!response.text.starts_with("* ") || !same_word(word(response.text, 1), "LIST")) return std::nullopt;
  TL_TRY_ASSIGN(std::vector<ImapToken> tokens, imap_tokens(std::move(response)));
  std::size_t i = 2;
  if (i >= tokens.size() || tokens[i].kind != ImapToken::Kind::open)
    return fail(Errc::corrupt, "the server's LIST has no flags");
  for (++i; i < tokens.size() && tokens[i].kind != ImapToken::Kind::close; ++i)
    if (same_word(tokens[i].text, "\\Noselect") || same_word(tokens[i].text, "\\NonExistent"))
      return std::nullopt;
  if (i + 2 >= tokens.size()) return fail(Errc::corrupt, "the server's LIST has no name");
  return std::move(tokens[i + 2].text);
}

Result<std::string> imap_quoted(std::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == 0 || c == '\r' || c == '\n' || c > 126)
      return fail(Errc::invalid, "a name or password has a byte that IMAP strings cannot have");
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<char>(c);
  }
  return out + '"';
}

}  // namespace twinloft::mailbench
