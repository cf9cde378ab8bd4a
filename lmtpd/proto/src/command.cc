#include "twinloft/lmtpd/proto/command.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

namespace {

using Parsed = std::expected<Command, Reply>;

constexpr std::size_t envelope_id_bytes_max = 100;  // RFC 3461 section 4.4
constexpr std::size_t orcpt_bytes_max = 500;        // section 4.2

std::unexpected<Reply> refuse(int code, std::string_view enhanced, std::string_view text) {
  return std::unexpected(make_reply(code, enhanced, text));
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equals_folded(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (lower(a[i]) != lower(b[i])) return false;
  return true;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

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

// RFC 3461 section 4: "+" and two upper-case hexadecimal digits are a byte. Only printable ASCII is accepted,
// because the text gets into headers and arguments. `beyond_ascii`: bytes above 127 are accepted unencoded
// (RFC 6533 section 3).
std::optional<std::string> decode_xtext(std::string_view in, bool beyond_ascii = false) {
  std::string out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i] != '+') {
      bool printable = in[i] >= 33 && in[i] <= 126 && in[i] != '=';
      if (!printable && !(beyond_ascii && static_cast<unsigned char>(in[i]) >= 0x80)) return std::nullopt;
      out += in[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= in.size()) return std::nullopt;
    auto [end, error] = std::from_chars(in.data() + i + 1, in.data() + i + 3, value, 16);
    if (error != std::errc() || end != in.data() + i + 3 || value < 32 || value > 126) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

// RFC 6533 section 3: "\x{" hexadecimal digits "}" is a character beyond ASCII.
std::optional<std::string> decode_utf8_address(std::string_view in) {
  auto text = decode_xtext(in, true);
  if (!text) return std::nullopt;
  constexpr std::string_view escape = "\\x{";
  std::string out;
  std::string_view rest = *text;
  for (std::size_t at; (at = rest.find(escape)) != std::string_view::npos;) {
    out += rest.substr(0, at);
    rest.remove_prefix(at + escape.size());
    std::uint32_t character = 0;
    auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), character, 16);
    bool closed = error == std::errc() && end != rest.data() + rest.size() && *end == '}';
    if (!closed || character < 0xa0 || !append_utf8(out, character)) return std::nullopt;
    rest.remove_prefix(static_cast<std::size_t>(end + 1 - rest.data()));
  }
  out += rest;
  if (!is_clean_utf8(out)) return std::nullopt;
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
      return make_reply(501, "5.5.4", "BODY must be 7BIT or 8BITMIME");
    return std::nullopt;
  }
  if (equals_folded(p.name, "SMTPUTF8")) {
    if (p.has_value) return make_reply(501, "5.5.4", "SMTPUTF8 takes no value");
    if (std::exchange(mail.smtputf8, true)) return given_twice("SMTPUTF8");
    return std::nullopt;
  }
  if (equals_folded(p.name, "RET")) {
    if (!mail.ret.empty()) return given_twice("RET");
    if (!equals_folded(p.value, "FULL") && !equals_folded(p.value, "HDRS"))
      return make_reply(501, "5.5.4", "RET must be FULL or HDRS");
    mail.ret = upper(p.value);
    return std::nullopt;
  }
  if (equals_folded(p.name, "ENVID")) {
    auto id = decode_xtext(p.value);
    if (!id || id->empty() || p.value.size() > envelope_id_bytes_max)
      return make_reply(501, "5.5.4", "ENVID needs 1 to 100 bytes of xtext");
    if (!mail.envelope_id.empty()) return given_twice("ENVID");
    mail.envelope_id = std::move(*id);
    return std::nullopt;
  }
  return make_reply(555, "5.5.4", "Unknown MAIL parameter");
}

Parsed parse_mail(std::string_view rest) {
  if (!take_keyword(rest, "FROM:")) return refuse(501, "5.5.4", "Syntax: MAIL FROM:<address>");
  auto path = take_path(rest, PathOf::sender);
  if (!path) return refuse(501, "5.1.7", path.error().message);
  Mail mail;
  mail.from = std::move(*path);
  if (!rest.empty() && !is_blank(rest.front()))
    return refuse(501, "5.1.7", "Unexpected text after the sender's address");
  bool has_body = false;
  while (auto p = take_parameter(rest))
    if (auto reply = apply(*p, mail, has_body)) return std::unexpected(*reply);
  return mail;
}

std::optional<Reply> apply_orcpt(const Parameter& p, Rcpt& rcpt) {
  std::size_t semicolon = p.value.find(';');
  if (semicolon == std::string_view::npos || semicolon == 0 || p.value.size() > orcpt_bytes_max)
    return make_reply(501, "5.5.4", "ORCPT needs type;address in xtext");
  std::string_view type = p.value.substr(0, semicolon), encoded = p.value.substr(semicolon + 1);
  auto address = equals_folded(type, "utf-8") ? decode_utf8_address(encoded) : decode_xtext(encoded);
  if (!address || !std::all_of(type.begin(), type.end(), [](char c) {
        return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '-';
      }))
    return make_reply(501, "5.5.4", "ORCPT needs type;address in xtext");
  if (address->empty()) return make_reply(501, "5.5.4", "ORCPT without an address");
  if (!rcpt.original_to.empty()) return given_twice("ORCPT");
  rcpt.original_to = std::move(*address);
  rcpt.original_type = type;
  for (char& c : rcpt.original_type) c = lower(c);
  return std::nullopt;
}

// "NEVER", or a list of the three other words, each once.
std::optional<Reply> apply_notify(const Parameter& p, Rcpt& rcpt) {
  if (!rcpt.notify.empty()) return given_twice("NOTIFY");
  constexpr std::string_view words[] = {"SUCCESS", "FAILURE", "DELAY"};
  bool given[std::size(words)] = {};
  std::string_view rest = p.value;
  for (bool more = !equals_folded(rest, "NEVER"); more;) {
    std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    auto found = std::find_if(std::begin(words), std::end(words),
                              [&](std::string_view w) { return equals_folded(rest.substr(0, comma), w); });
    if (found == std::end(words) || std::exchange(given[found - words], true))
      return make_reply(501, "5.5.4", "NOTIFY must be NEVER, or a list of SUCCESS, FAILURE, DELAY");
    if (more) rest.remove_prefix(comma + 1);
  }
  rcpt.notify = upper(p.value);
  return std::nullopt;
}

std::optional<Reply> apply(const Parameter& p, Rcpt& rcpt) {
  if (equals_folded(p.name, "ORCPT")) return apply_orcpt(p, rcpt);
  if (equals_folded(p.name, "NOTIFY")) return apply_notify(p, rcpt);
  return make_reply(555, "5.5.4", "Unknown RCPT parameter");
}

Parsed parse_rcpt(std::string_view rest) {
  if (!take_keyword(rest, "TO:")) return refuse(501, "5.5.4", "Syntax: RCPT TO:<address>");
  auto path = take_path(rest, PathOf::recipient);
  if (!path) return refuse(501, "5.1.3", path.error().message);
  if (path->is_null()) return refuse(501, "5.1.3", "The null path cannot receive mail");
  Rcpt rcpt;
  rcpt.to = std::move(*path);
  if (!rest.empty() && !is_blank(rest.front()))
    return refuse(501, "5.1.3", "Unexpected text after the recipient's address");
  while (auto p = take_parameter(rest))
    if (auto reply = apply(*p, rcpt)) return std::unexpected(*reply);
  return rcpt;
}

// Checks a name that is written into a Received field and must not forge other text. Empty: no error.
std::string_view wrong_with_name(std::string_view name) {
  if (name.size() > domain_bytes_max) return "Name too long";
  for (char c : name)
    if (c < 33 || c > 126 || c == '(' || c == ')' || c == '<' || c == '>' || c == '\\' || c == '"')
      return "Malformed name";
  return {};
}

Parsed parse_lhlo(std::string_view rest) {
  skip_blanks(rest);
  std::string_view domain = take_word(rest);
  skip_blanks(rest);
  if (domain.empty() || !rest.empty()) return refuse(501, "5.5.4", "Syntax: LHLO name");
  if (auto wrong = wrong_with_name(domain); !wrong.empty()) return refuse(501, "5.5.4", wrong);
  return Lhlo{std::string(domain)};
}

bool is_address(std::string& text) {
  in6_addr scratch;
  if (text.size() > 5 && equals_folded(std::string_view(text).substr(0, 5), "IPV6:")) text.erase(0, 5);
  return ::inet_pton(AF_INET, text.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &scratch) == 1;
}

std::optional<Reply> apply(const Parameter& p, ClientAttributes& out) {
  struct Known {
    std::string_view name;
    std::optional<std::string> ClientAttributes::* to;
  };
  static constexpr Known known[] = {
      {"NAME", &ClientAttributes::name},   {"ADDR", &ClientAttributes::address},
      {"PORT", &ClientAttributes::port},   {"PROTO", &ClientAttributes::proto},
      {"HELO", &ClientAttributes::helo},   {"LOGIN", &ClientAttributes::login},
      {"IDENT", &ClientAttributes::ident}, {"SOURCE", &ClientAttributes::source}};
  auto found = std::find_if(std::begin(known), std::end(known),
                            [&](const Known& k) { return equals_folded(k.name, p.name); });
  if (found == std::end(known)) return make_reply(501, "5.5.4", "Unknown attribute");
  auto value = decode_xtext(p.value);
  if (!p.has_value || !value || value->empty())
    return make_reply(501, "5.5.4", std::string(found->name) + " needs a value in xtext");
  if (out.*found->to) return given_twice(found->name);
  if (equals_folded(*value, "[UNAVAILABLE]") || equals_folded(*value, "[TEMPUNAVAIL]")) value->clear();
  if (auto wrong = wrong_with_name(*value); !wrong.empty())
    return make_reply(501, "5.5.4", std::string(found->name) + ": malformed");
  if (found->to == &ClientAttributes::address && !value->empty() && !is_address(*value))
    return make_reply(501, "5.5.4", "ADDR needs a numeric address");
  out.*found->to = std::move(*value);
  return std::nullopt;
}

template <class T>
Parsed parse_attributes(std::string_view rest) {
  T out;
  skip_blanks(rest);
  if (rest.empty()) return refuse(501, "5.5.4", "Syntax: attribute=value ...");
  while (auto p = take_parameter(rest))
    if (auto reply = apply(*p, out)) return std::unexpected(*reply);
  return out;
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

bool is_mail(std::string_view line) {
  return equals_folded(take_word(line), "MAIL");
}
bool is_rcpt(std::string_view line) {
  return equals_folded(take_word(line), "RCPT");
}
bool is_bdat(std::string_view line) {
  constexpr std::string_view verb = "BDAT";
  return equals_folded(line.substr(0, verb.size()), verb) &&
         (line.size() == verb.size() || static_cast<unsigned char>(line[verb.size()]) <= ' ');
}

Parsed parse_command(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return refuse(500, "5.5.2", "NUL byte in a command");
  if (line.find('\r') != std::string_view::npos)
    return refuse(500, "5.5.2", "Carriage return within a command");
  std::string_view rest = line;
  std::string_view verb = take_word(rest);
  if (equals_folded(verb, "RCPT")) return parse_rcpt(rest);
  if (equals_folded(verb, "MAIL")) return parse_mail(rest);
  if (equals_folded(verb, "DATA")) return without_argument(rest, Data{});
  if (equals_folded(verb, "BDAT")) return parse_bdat(rest);
  if (equals_folded(verb, "LHLO")) return parse_lhlo(rest);
  if (equals_folded(verb, "STARTTLS")) return without_argument(rest, StartTls{});
  if (equals_folded(verb, "XFORWARD")) return parse_attributes<Xforward>(rest);
  if (equals_folded(verb, "XCLIENT")) return parse_attributes<Xclient>(rest);
  if (equals_folded(verb, "RSET")) return without_argument(rest, Rset{});
  if (equals_folded(verb, "QUIT")) return without_argument(rest, Quit{});
  if (equals_folded(verb, "NOOP")) return Noop{};
  if (equals_folded(verb, "VRFY")) return parse_vrfy(rest);
  if (equals_folded(verb, "HELP")) return Help{};
  if (equals_folded(verb, "HELO") || equals_folded(verb, "EHLO"))
    return refuse(500, "5.5.1", "This is LMTP: use LHLO");
  return refuse(500, "5.5.1", "Unknown command");
}

}  // namespace twinloft::lmtpd
