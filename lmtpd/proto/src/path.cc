#include "twinloft/lmtpd/proto/path.h"

#include <arpa/inet.h>
#include <idn2.h>
#include <strings.h>

#include <algorithm>
#include <memory>

#include "twinloft/base/utf8.h"

namespace twinloft::lmtpd {

namespace {

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// atext of RFC 5322 section 3.2.3, and the dot. Consecutive dots are accepted: such addresses exist.
bool is_dot_atom(char c) {
  return is_alnum(c) || std::string_view("!#$%&'*+-/=?^_`{|}~.").find(c) != std::string_view::npos;
}

bool is_domain_byte(char c) {
  return is_alnum(c) || c == '-' || c == '.' || c == '_';
}

void to_lower(std::string& text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
}

bool is_beyond_ascii(char c) {
  return static_cast<unsigned char>(c) >= 0x80;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

// Bytes accepted outside of quotes in a sender's path, even if the grammar forbids them: all bytes that do
// not end the path or begin another word.
bool is_kept_byte(char c) {
  return !is_control(c) && c != ' ' && c != '<' && c != '>';
}

std::unexpected<Error> bad(std::string_view what) {
  return fail(Errc::invalid, "{}", what);
}

// "@a,@b:" before the mailbox.
Status skip_source_route(std::string_view& s, PathOf whose) {
  if (!s.starts_with('@')) return {};
  std::size_t colon = s.find(':');
  if (colon == std::string_view::npos) return bad("source route without its colon");
  auto may_stand = [whose](char c) {
    return is_domain_byte(c) || c == '@' || c == ',' || (whose == PathOf::sender && is_kept_byte(c));
  };
  if (!std::ranges::all_of(s.substr(0, colon), may_stand)) return bad("malformed source route");
  s.remove_prefix(colon + 1);
  return {};
}

// A sender's quoted local part may be empty and may have control bytes, because Postfix accepts and passes on
// both.
Status take_quoted(std::string_view& s, std::string& out, PathOf whose) {
  s.remove_prefix(1);
  while (!s.empty()) {
    char c = s.front();
    s.remove_prefix(1);
    if (c == '"') return {};
    if (c == '\\') {
      if (s.empty()) break;
      c = s.front();
      s.remove_prefix(1);
    }
    if (whose == PathOf::recipient && is_control(c)) return bad("control byte in the quoted local part");
    out += c;
  }
  return bad("quoted local part without its end");
}

Status take_local_part(std::string_view& s, std::string& out, PathOf whose) {
  bool quoted = s.starts_with('"');
  if (quoted) {
    TL_TRY(take_quoted(s, out, whose));
  } else {
    auto may_stand = [whose](char c) {
      return is_dot_atom(c) || is_beyond_ascii(c) || (whose == PathOf::sender && c != '@' && is_kept_byte(c));
    };
    auto end = std::find_if_not(s.begin(), s.end(), may_stand);
    out.assign(s.begin(), end);
    s.remove_prefix(out.size());
  }
  if (out.empty() && !(quoted && whose == PathOf::sender)) return bad("empty local part");
  return {};
}

// The text inside the brackets (RFC 5321 section 4.1.3): IPv4, "IPv6:" and an address, or another tag and its
// content.
bool is_literal(const std::string& text) {
  in6_addr scratch;
  if (::inet_pton(AF_INET, text.c_str(), &scratch) == 1) return text.find('\0') == std::string::npos;
  std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) return false;
  auto is_tag_byte = [](char c) { return is_alnum(c) || c == '-'; };
  auto is_content = [](char c) { return c >= 33 && c <= 126 && c != '[' && c != '\\'; };
  if (!std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon), is_tag_byte))
    return false;
  if (!std::all_of(text.begin(), text.end(), is_content)) return false;
  if (::strncasecmp(text.c_str(), "IPv6:", 5) != 0) return true;
  return ::inet_pton(AF_INET6, text.c_str() + 5, &scratch) == 1;
}

// Converts an address literal with its brackets to a single form, because an IPv6 address has many spellings.
Status normalise_literal(std::string& literal) {
  constexpr std::string_view v6 = "[ipv6:";
  if (!is_literal(literal.substr(1, literal.size() - 2))) return bad("malformed address literal");
  to_lower(literal);
  if (!literal.starts_with(v6)) return {};
  in6_addr address{};
  char text[INET6_ADDRSTRLEN] = {};
  if (::inet_pton(AF_INET6, literal.substr(v6.size(), literal.size() - v6.size() - 1).c_str(), &address) ==
          1 &&
      ::inet_ntop(AF_INET6, &address, text, sizeof text))
    literal = fmt::format("{}{}]", v6, text);
  return {};
}

// Whether no label is empty.
bool has_labels(std::string_view domain) {
  return !domain.empty() && domain.front() != '.' && domain.back() != '.' &&
         domain.find("..") == std::string_view::npos;
}

// Converts to the form used in the user database (RFC 5891 section 5). The flag for STD 3 is not set: with it
// libidn2 removes characters, which gives another domain. A domain that IDNA does not allow stays unchanged,
// because the MTA has accepted it and the look-up decides.
Status to_a_labels(std::string& domain) {
  if (!is_clean_utf8(domain)) return bad("address that is not UTF-8");
  char* out = nullptr;
  int code = idn2_to_ascii_8z(domain.c_str(), &out, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
  std::unique_ptr<char, void (*)(void*)> owned(out, idn2_free);
  if (code != IDN2_OK) return {};
  std::string_view labels = out;
  if (has_labels(labels) && std::all_of(labels.begin(), labels.end(), is_domain_byte)) domain = labels;
  return {};
}

// A sender's domain is never looked up, so it is kept as written.
Status take_domain(std::string_view& s, std::string& out, PathOf whose) {
  if (whose == PathOf::sender) {
    auto end = std::find_if_not(s.begin(), s.end(), [](char c) { return is_kept_byte(c) && c != '@'; });
    out.assign(s.begin(), end);
    s.remove_prefix(out.size());
    return {};
  }
  if (s.starts_with('[')) {
    std::size_t end = s.find(']');
    if (end == std::string_view::npos) return bad("address literal without its bracket");
    out = s.substr(0, end + 1);
    s.remove_prefix(out.size());
    TL_TRY(normalise_literal(out));
  } else {
    auto end = std::find_if_not(s.begin(), s.end(),
                                [](char c) { return is_domain_byte(c) || is_beyond_ascii(c); });
    out.assign(s.begin(), end);
    if (out.ends_with('.')) out.pop_back();  // removes the dot of the root domain
    s.remove_prefix(out.size());
    if (out.empty()) return bad("malformed domain");
    if (!is_ascii(out)) TL_TRY(to_a_labels(out));
    if (!has_labels(out)) return bad("malformed domain");
    to_lower(out);
  }
  if (out.size() > domain_bytes_max) return bad("domain too long");
  return {};
}

// Checks that the address is usable in the user database and in paths below the spool.
Status check_recipient(const Path& path) {
  if (!path.is_ascii && !is_clean_utf8(path.text)) return bad("address that is not UTF-8");
  if (!is_clean_utf8(path.local_part)) return bad("address that is not UTF-8");
  if (path.text.size() > path_bytes_max) return bad("address too long");
  return {};
}

}  // namespace

Result<Path> take_path(std::string_view& rest, PathOf whose) {
  if (!rest.starts_with('<')) return bad("expected an address in angle brackets");
  std::string_view s = rest.substr(1);
  Path path;
  if (!s.starts_with('>')) {
    TL_TRY(skip_source_route(s, whose));
    const char* begin = s.data();
    TL_TRY(take_local_part(s, path.local_part, whose));
    if (s.starts_with('@')) {
      s.remove_prefix(1);
      TL_TRY(take_domain(s, path.domain, whose));
    }
    path.text.assign(begin, s.data());
    bool is_name = !path.domain.empty() && path.domain.front() != '[';
    if (whose == PathOf::recipient && is_name && s.starts_with(".>"))
      s.remove_prefix(1);  // the dot of the root domain, as in "example.org."
    path.is_ascii = is_ascii(path.text);
    if (whose == PathOf::recipient) TL_TRY(check_recipient(path));
    if (!s.starts_with('>'))
      return bad(s.empty() ? "address without its closing bracket" : "malformed address");
  }
  rest = s.substr(1);
  return path;
}

Result<std::string> normal_domain(std::string_view text) {
  std::string_view rest = text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
  std::string out;
  Status taken = take_domain(rest, out, PathOf::recipient);
  if (!taken) return fail(Errc::invalid, "\"{}\" is not a domain: {}", text, taken.error().message);
  if (!rest.empty()) return fail(Errc::invalid, "\"{}\" is not a domain: malformed domain", text);
  return out;
}

std::string with_ascii_host(std::string_view address) {
  std::size_t colon = std::min(address.rfind(':'), address.size());
  std::string_view host = address.substr(0, colon);
  auto normal = is_ascii(host) ? std::unexpected(Error{}) : normal_domain(host);
  return normal ? *normal + std::string(address.substr(colon)) : std::string(address);
}

std::string with_ascii_domain(std::string_view address, std::string_view domain) {
  std::size_t at = address.rfind('@');
  if (at == std::string_view::npos || domain.empty() || is_ascii(address) || !is_ascii(domain))
    return std::string(address);
  return std::string(address.substr(0, at + 1)).append(domain);
}

std::string unicode_domain(const std::string& domain) {
  if (domain.find("xn--") == std::string::npos) return domain;
  char* out = nullptr;
  int code = idn2_to_unicode_8z8z(domain.c_str(), &out, 0);
  std::unique_ptr<char, void (*)(void*)> owned(out, idn2_free);
  return code == IDN2_OK ? std::string(out) : domain;
}

Result<Path> parse_address(std::string_view text) {
  if (text.find('@') != std::string_view::npos && text.ends_with('.')) text.remove_suffix(1);
  std::string bracketed = fmt::format("<{}>", text);
  std::string_view rest = bracketed;
  auto path = take_path(rest, PathOf::recipient);
  if (!path) return fail(Errc::invalid, "\"{}\" is not an address: {}", text, path.error().message);
  if (path->is_null() || !rest.empty() || path->text != text)
    return fail(Errc::invalid, "\"{}\" is not one address", text);
  return path;
}

SplitLocalPart split_detail(std::string_view local_part, std::string_view delimiter) {
  std::size_t at = delimiter.empty() ? std::string_view::npos : local_part.find(delimiter, 1);
  if (at == std::string_view::npos) return {local_part, {}};
  return {local_part.substr(0, at), local_part.substr(at + delimiter.size())};
}

}  // namespace twinloft::lmtpd
