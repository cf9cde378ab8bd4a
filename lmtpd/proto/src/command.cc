#include "twinloft/lmtpd/proto/command.h"

#include <charconv>
#include <utility>

#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

namespace {

using Parsed = std::expected<Command, Reply>;

std::unexpected<Reply> refuse(int code, std::string_view enhanced, std::string_view text) {
  return std::unexpected(make_reply(code, enhanced, text));
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equals_folded(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (lower(a[i]) != lower(b[i])) return false;
  return true;
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

void skip_blanks(std::string_view& s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
}

std::string_view take_word(std::string_view& s) {
  std::size_t end = 0;
  while (end < s.size() && !is_blank(s[end])) ++end;
  std::string_view word = s.substr(0, end);
  s.remove_prefix(end);
  return word;
}

// RFC 3461 section 4: "+" and two upper-case hexadecimal digits stand for a byte.
std::optional<std::string> decode_xtext(std::string_view in) {
  std::string out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] != '+') {
      if (in[i] < 33 || in[i] > 126 || in[i] == '=') return std::nullopt;
      out += in[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= in.size()) return std::nullopt;
    auto [end, error] = std::from_chars(in.data() + i + 1, in.data() + i + 3, value, 16);
    // What is not printable ASCII would travel into headers and arguments.
    if (error != std::errc() || end != in.data() + i + 3 || value < 32 || value > 126) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

struct Parameter {
  std::string_view name, value;
  bool has_value = false;
};

std::optional<Parameter> take_parameter(std::string_view& rest) {
  skip_blanks(rest);
  if (rest.empty()) return std::nullopt;
  std::string_view word = take_word(rest);
  std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return Parameter{word, {}, false};
  return Parameter{word.substr(0, equals), word.substr(equals + 1), true};
}

// "FROM:" or "TO:" in any case; blanks after it are accepted, as postal and others send them.
bool take_keyword(std::string_view& rest, std::string_view keyword) {
  skip_blanks(rest);
  if (!equals_folded(rest.substr(0, keyword.size()), keyword)) return false;
  rest.remove_prefix(keyword.size());
  skip_blanks(rest);
  return true;
}

Reply given_twice(std::string_view name) {
  return make_reply(501, "5.5.4", std::string(name) + " is given twice");
}

std::optional<Reply> apply(const Parameter& p, Mail& mail, bool& has_body) {
  if (equals_folded(p.name, "SIZE")) {
    if (mail.size) return given_twice("SIZE");
    std::uint64_t size = 0;
    auto [end, error] = std::from_chars(p.value.data(), p.value.data() + p.value.size(), size);
    if (!p.has_value || p.value.empty() || end != p.value.data() + p.value.size() ||
        (error != std::errc() && error != std::errc::result_out_of_range))
      return make_reply(501, "5.5.4", "SIZE needs a number of bytes");
    mail.size = error == std::errc() ? size : UINT64_MAX;
    return std::nullopt;
  }
  if (equals_folded(p.name, "BODY")) {
    if (std::exchange(has_body, true)) return given_twice("BODY");
    mail.body_8bitmime = equals_folded(p.value, "8BITMIME");
    if (!mail.body_8bitmime && !equals_folded(p.value, "7BIT"))
      return make_reply(501, "5.5.4", "BODY is 7BIT or 8BITMIME here");
    return std::nullopt;
  }
  return make_reply(555, "5.5.4", "Unknown MAIL parameter");
}

Parsed parse_mail(std::string_view rest) {
  if (!take_keyword(rest, "FROM:")) return refuse(501, "5.5.4", "Syntax: MAIL FROM:<address>");
  auto path = take_path(rest);
  if (!path) return refuse(501, "5.1.7", path.error().message);
  Mail mail;
  mail.from = std::move(*path);
  if (!rest.empty() && !is_blank(rest.front())) return refuse(501, "5.1.7", "Something follows the sender's address");
  bool has_body = false;
  while (auto p = take_parameter(rest))
    if (auto reply = apply(*p, mail, has_body)) return std::unexpected(*reply);
  return mail;
}

std::optional<Reply> apply(const Parameter& p, Rcpt& rcpt) {
  if (!equals_folded(p.name, "ORCPT")) return make_reply(555, "5.5.4", "Unknown RCPT parameter");
  std::size_t semicolon = p.value.find(';');
  auto address = semicolon == std::string_view::npos ? std::nullopt : decode_xtext(p.value.substr(semicolon + 1));
  if (!address || semicolon == 0) return make_reply(501, "5.5.4", "ORCPT needs type;address in xtext");
  if (address->empty()) return make_reply(501, "5.5.4", "ORCPT without an address");
  if (!rcpt.original_to.empty()) return given_twice("ORCPT");
  rcpt.original_to = std::move(*address);
  return std::nullopt;
}

Parsed parse_rcpt(std::string_view rest) {
  if (!take_keyword(rest, "TO:")) return refuse(501, "5.5.4", "Syntax: RCPT TO:<address>");
  auto path = take_path(rest);
  if (!path) return refuse(501, "5.1.3", path.error().message);
  if (path->is_null()) return refuse(501, "5.1.3", "The null path cannot receive mail");
  Rcpt rcpt;
  rcpt.to = std::move(*path);
  if (!rest.empty() && !is_blank(rest.front())) return refuse(501, "5.1.3", "Something follows the recipient's address");
  while (auto p = take_parameter(rest))
    if (auto reply = apply(*p, rcpt)) return std::unexpected(*reply);
  return rcpt;
}

Parsed parse_lhlo(std::string_view rest) {
  skip_blanks(rest);
  std::string_view domain = take_word(rest);
  skip_blanks(rest);
  if (domain.empty() || !rest.empty()) return refuse(501, "5.5.4", "Syntax: LHLO name");
  if (domain.size() > domain_bytes_max) return refuse(501, "5.5.4", "Name too long");
  for (char c : domain)
    if (c < 33 || c > 126 || c == '(' || c == ')' || c == '<' || c == '>' || c == '\\' || c == '"')
      return refuse(501, "5.5.4", "Malformed name");
  return Lhlo{std::string(domain)};
}

// "BDAT" size [ "LAST" ]
Parsed parse_bdat(std::string_view rest) {
  constexpr std::string_view syntax = "Syntax: BDAT size [LAST]";
  skip_blanks(rest);
  std::string_view size = take_word(rest);
  skip_blanks(rest);
  std::string_view word = take_word(rest);
  skip_blanks(rest);
  Bdat out;
  auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), out.size);
  if (error != std::errc() || end != size.data() + size.size()) return refuse(501, "5.5.4", syntax);
  out.last = equals_folded(word, "LAST");
  if ((!word.empty() && !out.last) || !rest.empty()) return refuse(501, "5.5.4", syntax);
  return out;
}

Parsed parse_vrfy(std::string_view rest) {
  skip_blanks(rest);
  if (rest.empty()) return refuse(501, "5.5.4", "Syntax: VRFY name");
  return Vrfy{};
}

template <class T>
Parsed without_argument(std::string_view rest, T command) {
  skip_blanks(rest);
  if (!rest.empty()) return refuse(501, "5.5.4", "This command takes no argument");
  return command;
}

}  // namespace

bool is_mail(std::string_view line) { return equals_folded(take_word(line), "MAIL"); }
bool is_bdat(std::string_view line) { return equals_folded(take_word(line), "BDAT"); }

Parsed parse_command(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return refuse(500, "5.5.2", "NUL byte in a command");
  if (line.find('\r') != std::string_view::npos) return refuse(500, "5.5.2", "Carriage return within a command");
  std::string_view rest = line;
  std::string_view verb = take_word(rest);
  if (equals_folded(verb, "RCPT")) return parse_rcpt(rest);
  if (equals_folded(verb, "MAIL")) return parse_mail(rest);
  if (equals_folded(verb, "DATA")) return without_argument(rest, Data{});
  if (equals_folded(verb, "BDAT")) return parse_bdat(rest);
  if (equals_folded(verb, "LHLO")) return parse_lhlo(rest);
  if (equals_folded(verb, "RSET")) return without_argument(rest, Rset{});
  if (equals_folded(verb, "QUIT")) return without_argument(rest, Quit{});
  if (equals_folded(verb, "NOOP")) return Noop{};
  if (equals_folded(verb, "VRFY")) return parse_vrfy(rest);
  if (equals_folded(verb, "HELP")) return Help{};
  if (equals_folded(verb, "HELO") || equals_folded(verb, "EHLO"))
    return refuse(500, "5.5.1", "This is LMTP: say LHLO");
  return refuse(500, "5.5.1", "Unknown command");
}

}  // namespace twinloft::lmtpd
