#include "read_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/un.h>

#include <charconv>

#include "twinloft/lmtpd/userdb/check.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::uint16_t smtp_port = 25;  // RFC 2033 section 5: LMTP must not be spoken there

// Converts to the form of inet_ntop(3), with its interface. False: not a numeric address.
bool normalize_host(std::string& host) {
  std::size_t percent = host.find('%');
  if (percent != std::string::npos) {
    std::string interface = host.substr(percent);
    host.resize(percent);
    if (interface.size() < 2 || host.find(':') == std::string::npos || !normalize_host(host)) return false;
    host += interface;
    return true;
  }
  in6_addr bytes;
  char text[INET6_ADDRSTRLEN];
  for (int family : {AF_INET, AF_INET6})
    if (::inet_pton(family, host.c_str(), &bytes) == 1) {
      host = ::inet_ntop(family, &bytes, text, sizeof text);
      return true;
    }
  return false;
}

// "127.0.0.1:2400", "[::1]:2400", "unix:/run/twinloft/lmtp.sock". Returns the error, or an empty text.
std::string parse_listen_address(const std::string& text, ListenSettings& out) {
  if (text.starts_with("unix:")) {
    out.unix_path = text.substr(5);
    if (out.unix_path.empty() || out.unix_path[0] != '/') return "expected an absolute path after \"unix:\"";
    if (out.unix_path.ends_with('/')) return "is the path of a directory: expected the path of a socket";
    out.unix_path = normal_path(out.unix_path);
    if (out.unix_path.size() >= sizeof(sockaddr_un::sun_path))
      return fmt::format("the path has {} bytes; a Unix socket's may have {}", out.unix_path.size(),
                         sizeof(sockaddr_un::sun_path) - 1);
    return {};
  }
  std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return "expected \"127.0.0.1:2400\", \"[::1]:2400\" or \"unix:/path\"";
  out.host = text.substr(0, colon);
  bool bracketed = out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']';
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  if (!normalize_host(out.host) || bracketed != (out.host.find(':') != std::string::npos))
    return "expected a numeric address before the port, such as 127.0.0.1, 0.0.0.0 or [::1]";
  in6_addr v6{};
  if (::inet_pton(AF_INET6, out.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LINKLOCAL(&v6))
    return fmt::format("a link-local address needs its interface: \"[{}%eth0]{}\"", out.host,
                       text.substr(colon));
  std::string_view port = std::string_view(text).substr(colon + 1);
  auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (code != std::errc() || end != port.data() + port.size() || out.port == 0)
    return "expected a port from 1 to 65535 after the colon";
  if (out.port == smtp_port) return "port 25 is reserved for SMTP (RFC 2033): use 24 or 2400";
  return {};
}

void read_mode(const TomlTable& t, unsigned& mode) {
  std::string text;
  t.text("mode", text);
  if (!t.has("mode")) return;
  unsigned value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (code != std::errc() || end != text.data() + text.size() || value > 0777)
    return t.error("mode", "expected octal digits in quotes, such as \"0660\"");
  mode = value;
}

}  // namespace

bool read_listen_address(const TomlTable& t, ListenSettings& listen) {
  t.text("address", listen.address, true);
  read_mode(t, listen.mode);
  t.identity("group", listen.group);
  if (listen.address.empty()) return false;
  std::string wrong = parse_listen_address(listen.address, listen);
  if (!wrong.empty())
    t.error("address", fmt::format("\"{}\": {}", listen.address, wrong));
  else if (listen.unix_path.empty() && t.has("mode"))
    t.error("mode", "is for Unix sockets only");
  else if (listen.unix_path.empty() && t.has("group"))
    t.error("group", "is for Unix sockets only");
  return wrong.empty();
}

std::string clash(const ListenSettings& first, const ListenSettings& second) {
  if (first.is_at(second)) return "is listed twice";
  bool v6 = second.host.find(':') != std::string::npos;
  bool same_port = first.port == second.port && v6 == (first.host.find(':') != std::string::npos);
  const std::string_view every = v6 ? "::" : "0.0.0.0";
  if (first.host.empty() || second.host.empty() || !same_port ||
      (first.host != every && second.host != every))
    return {};
  return fmt::format("{} and {} cannot both be used: one of them is every address with this port",
                     first.address, second.address);
}

}  // namespace twinloft::lmtpd
