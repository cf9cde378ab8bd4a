#include "twinloft/lmtpd/proto/path.h"

#include <arpa/inet.h>
#include <idn2.h>
#include <strings.h>

#include <algorithm>
#include <memory>

#include "twinloft/base/utf8.h"

namespace twinloft::lmtpd {

namespace {

bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// atext of RFC 5322 section 3.2.3, and the dot. Consecutive dots are accepted: such addresses exist.
bool is_dot_atom(char c) { return is_alnum(c) || std::string_view("!#$%&'*+-/=?^_`{|}~.").find(c) != std::string_view::npos; }

bool is_domain_byte(char c) { return is_alnum(c) || c == '-' || c == '.' || c == '_'; }

bool is_beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

std::unexpected<Error> bad(std::string_view what) { return fail(Errc::invalid, "{}", what); }

// "@a,@b:" before the mailbox.
Status skip_source_route(std::string_view& s) {
  if (!s.starts_with('@')) return {};
  std::size_t colon = s.find(':');
  if (colon == std::string_view::npos) return bad("source route without its colon");
  for (char c : s.substr(0, colon))
    if (!is_domain_byte(c) && c != '@' && c != ',') return bad("malformed source route");
  s.remove_prefix(colon + 1);
  return {};
}

Status take_quoted(std::string_view& s, std::string& out) {
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
    if ((c < 32 && !is_beyond_ascii(c)) || c == 127) return bad("control byte in the quoted local part");
    out += c;
  }
  return bad("quoted local part without its end");
}

Status take_local_part(std::string_view& s, std::string& out) {
  if (s.starts_with('"')) {
    TL_TRY(take_quoted(s, out));
  } else {
    auto end = std::find_if_not(s.begin(), s.end(), [](char c) { return is_dot_atom(c) || is_beyond_ascii(c); });
    out.assign(s.begin(), end);
    s.remove_prefix(out.size());
  }
  if (out.empty()) return bad("empty local part");
  return {};
}

// Inside the brackets (RFC 5321 section 4.1.3): IPv4, "IPv6:" and an address, or another tag and what it needs.
bool is_literal(const std::string& text) {
  in6_addr scratch;
  if (::inet_pton(AF_INET, text.c_str(), &scratch) == 1) return text.find('\0') == std::string::npos;
  std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) return false;
  auto is_tag_byte = [](char c) { return is_alnum(c) || c == '-'; };
  auto is_content = [](char c) { return c >= 33 && c <= 126 && c != '[' && c != '\\'; };
  if (!std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon), is_tag_byte)) return false;
  if (!std::all_of(text.begin(), text.end(), is_content)) return false;
  if (::strncasecmp(text.c_str(), "IPv6:", 5) != 0) return true;
  return ::inet_pton(AF_INET6, text.c_str() + 5, &scratch) == 1;
}

// None of them empty.
bool has_labels(std::string_view domain) {
  return !domain.empty() && domain.front() != '.' && domain.back() != '.' && domain.find("..") == std::string_view::npos;
}

// A domain has one form in the user database, however it was written (RFC 5891 section 5). Without the flag for STD 3, with which libidn2 leaves
// characters out that stand for others than letters, digits and hyphens, and so makes another domain of it. What IDNA does not allow stays as it
// is: the MTA has accepted it, and the user database says whether there is such a user.
Status to_a_labels(std::string& domain) {
  if (!is_clean_utf8(domain)) return bad("address that is no UTF-8");
  char* out = nullptr;
  int code = idn2_to_ascii_8z(domain.c_str(), &out, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
  std::unique_ptr<char, void (*)(void*)> owned(out, idn2_free);
  if (code != IDN2_OK) return {};
  std::string_view labels = out;
  if (has_labels(labels) && std::all_of(labels.begin(), labels.end(), is_domain_byte)) domain = labels;
  return {};
}

// A sender's is never looked up: it is kept as it is.
Status take_domain(std::string_view& s, std::string& out, PathOf whose) {
  if (s.starts_with('[')) {
    std::size_t end = s.find(']');
    if (end == std::string_view::npos) return bad("address literal without its bracket");
    out = s.substr(0, end + 1);
    s.remove_prefix(out.size());
    if (!is_literal(out.substr(1, end - 1))) return bad("malformed address literal");
  } else {
    auto end = std::find_if_not(s.begin(), s.end(), [](char c) { return is_domain_byte(c) || is_beyond_ascii(c); });
    out.assign(s.begin(), end);
    s.remove_prefix(out.size());
    if (out.empty()) return bad("malformed domain");
    if (whose == PathOf::sender) return {};
    if (!is_ascii(out)) TL_TRY(to_a_labels(out));
    if (!has_labels(out)) return bad("malformed domain");
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  }
  if (out.size() > domain_bytes_max) return bad("domain too long");
  return {};
}

// What a user database, and the paths below a spool, can do with.
Status check_recipient(const Path& path) {
  if (!path.is_ascii && !is_clean_utf8(path.text)) return bad("address that is no UTF-8");
  if (!is_clean_utf8(path.local_part)) return bad("address that is no UTF-8");
  if (path.text.size() > path_bytes_max) return bad("address too long");
  return {};
}

}  // namespace

Result<Path> take_path(std::string_view& rest, PathOf whose) {
  if (!rest.starts_with('<')) return bad("expected an address in angle brackets");
  std::string_view s = rest.substr(1);
  Path path;
  if (!s.starts_with('>')) {
    TL_TRY(skip_source_route(s));
    const char* begin = s.data();
    TL_TRY(take_local_part(s, path.local_part));
    if (s.starts_with('@')) {
      s.remove_prefix(1);
      TL_TRY(take_domain(s, path.domain, whose));
    }
    path.text.assign(begin, s.data());
    path.is_ascii = is_ascii(path.text);
    if (whose == PathOf::recipient) TL_TRY(check_recipient(path));
    if (!s.starts_with('>')) return bad(s.empty() ? "address without its closing bracket" : "malformed address");
  }
  rest = s.substr(1);
  return path;
}

Result<std::string> normal_domain(std::string_view text) {
  std::string_view rest = text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
  std::string out;
  Status taken = take_domain(rest, out, PathOf::recipient);
  if (!taken) return fail(Errc::invalid, "\"{}\" is no domain: {}", text, taken.error().message);
  if (!rest.empty()) return fail(Errc::invalid, "\"{}\" is no domain: malformed domain", text);
  return out;
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
  if (!path) return fail(Errc::invalid, "\"{}\" is no address: {}", text, path.error().message);
  if (path->is_null() || !rest.empty() || path->text != text) return fail(Errc::invalid, "\"{}\" is not one address", text);
  return path;
}

SplitLocalPart split_detail(std::string_view local_part, std::string_view delimiter) {
  std::size_t at = delimiter.empty() ? std::string_view::npos : local_part.find(delimiter, 1);
  if (at == std::string_view::npos) return {local_part, {}};
  return {local_part.substr(0, at), local_part.substr(at + delimiter.size())};
}

std::string quote_local_part(std::string_view text) {
  constexpr std::string_view atext = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-/=?^_`{|}~.";
  bool plain = !text.empty() && text.front() != '.' && text.back() != '.' && text.find("..") == std::string_view::npos &&
               std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) >= 0x80 || atext.find(c) != std::string_view::npos; });
  if (plain) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace twinloft::lmtpd
