#include "twinloft/lmtpd/proto/path.h"

#include <arpa/inet.h>
#include <strings.h>

#include <algorithm>

namespace twinloft::lmtpd {

namespace {

bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// atext of RFC 5322 section 3.2.3, and the dot. Consecutive dots are accepted: such addresses exist.
bool is_dot_atom(char c) { return is_alnum(c) || std::string_view("!#$%&'*+-/=?^_`{|}~.").find(c) != std::string_view::npos; }

bool is_domain_byte(char c) { return is_alnum(c) || c == '-' || c == '.' || c == '_'; }

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
    if (c < 32 || c > 126) return bad("byte in the quoted local part that is not printable ASCII");
    out += c;
  }
  return bad("quoted local part without its end");
}

Status take_local_part(std::string_view& s, std::string& out) {
  if (s.starts_with('"')) {
    TL_TRY(take_quoted(s, out));
  } else {
    auto end = std::find_if_not(s.begin(), s.end(), is_dot_atom);
    out.assign(s.begin(), end);
    s.remove_prefix(out.size());
    if (!s.empty() && static_cast<unsigned char>(s.front()) > 127) return bad("address beyond ASCII, and SMTPUTF8 is not offered");
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

Status take_domain(std::string_view& s, std::string& out) {
  if (s.starts_with('[')) {
    std::size_t end = s.find(']');
    if (end == std::string_view::npos) return bad("address literal without its bracket");
    out = s.substr(0, end + 1);
    if (!is_literal(std::string(s.substr(1, end - 1)))) return bad("malformed address literal");
  } else {
    auto end = std::find_if_not(s.begin(), s.end(), is_domain_byte);
    out.assign(s.begin(), end);
    if (out.empty() || out.front() == '.' || out.back() == '.' || out.find("..") != std::string::npos)
      return bad("malformed domain");
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  }
  s.remove_prefix(out.size());
  if (out.size() > domain_bytes_max) return bad("domain too long");
  return {};
}

}  // namespace

Result<Path> take_path(std::string_view& rest) {
  if (!rest.starts_with('<')) return bad("expected an address in angle brackets");
  std::string_view s = rest.substr(1);
  Path path;
  if (!s.starts_with('>')) {
    TL_TRY(skip_source_route(s));
    const char* begin = s.data();
    TL_TRY(take_local_part(s, path.local_part));
    if (s.starts_with('@')) {
      s.remove_prefix(1);
      TL_TRY(take_domain(s, path.domain));
    }
    path.text.assign(begin, s.data());
    if (path.text.size() > path_bytes_max) return bad("address too long");
    if (!s.starts_with('>')) return bad(s.empty() ? "address without its closing bracket" : "malformed address");
  }
  rest = s.substr(1);
  return path;
}

SplitLocalPart split_detail(std::string_view local_part, std::string_view delimiter) {
  std::size_t at = delimiter.empty() ? std::string_view::npos : local_part.find(delimiter, 1);
  if (at == std::string_view::npos) return {local_part, {}};
  return {local_part.substr(0, at), local_part.substr(at + delimiter.size())};
}

}  // namespace twinloft::lmtpd
