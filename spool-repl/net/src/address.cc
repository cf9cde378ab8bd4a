#include "twinloft/spool-repl/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <memory>

namespace twinloft::repl::net {

namespace {

struct HostPort {
  std::string host, port;
};

Result<HostPort> split(const std::string& text) {
  std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size())
    return fail(Errc::invalid, "\"{}\" is not an address: expected host:port", text);
  std::string host = text.substr(0, colon), port = text.substr(colon + 1);
  // getaddrinfo() would take 70000 modulo 65536.
  unsigned number = 0;
  auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (ec != std::errc() || end != port.data() + port.size() || number > 65535)
    return fail(Errc::invalid, "\"{}\" is not an address: \"{}\" is not a port from 0 to 65535", text, port);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  // getaddrinfo() would return the loopback address for both forms.
  if (host.empty() || host == "*")
    return fail(Errc::invalid,
                "\"{}\" names no host: 0.0.0.0:{} and [::]:{} are all addresses of this machine", text, port,
                port);
  if (host.find_first_of("[] \t/") != host.npos)
    return fail(Errc::invalid, "\"{}\" is not an address: expected host:port", text);
  return HostPort{std::move(host), std::move(port)};
}

struct Freed {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Found = std::unique_ptr<addrinfo, Freed>;

// Returns the result of getaddrinfo(3): 0, or EAI_...
int look_up(const HostPort& at, int flags, Found& out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  int rc = getaddrinfo(at.host.empty() ? nullptr : at.host.c_str(), at.port.c_str(), &hints, &found);
  if (rc == 0) out.reset(found);
  return rc;
}

Address address_of(const addrinfo& found, const std::string& text) {
  Address out;
  std::memcpy(&out.storage, found.ai_addr, found.ai_addrlen);
  out.length = found.ai_addrlen;
  out.text = text;
  return out;
}

bool lacks_interface(const Address& a) {
  if (a.storage.ss_family != AF_INET6) return false;
  auto* in6 = reinterpret_cast<const sockaddr_in6*>(&a.storage);
  return IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) && in6->sin6_scope_id == 0;
}

}  // namespace

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
    return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
  }
  const in6_addr& in6 = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&in6) || (IN6_IS_ADDR_V4MAPPED(&in6) && in6.s6_addr[12] == 127);
}

std::uint16_t Address::port() const {
  return ntohs(storage.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                                            : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

bool Address::is_wildcard() const {
  if (storage.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == INADDR_ANY;
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
}

bool Address::is_multicast() const {
  if (storage.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >= 0xe000'0000;
  return IN6_IS_ADDR_MULTICAST(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
}

bool Address::overlaps(const Address& other) const {
  if (port() != other.port() || port() == 0) return false;
  if (storage.ss_family != other.storage.ss_family) return false;
  if (is_wildcard() || other.is_wildcard()) return true;
  return length == other.length && std::memcmp(&storage, &other.storage, length) == 0;
}

std::optional<Address> numeric_address(const std::string& text) {
  auto at = split(text);
  Found found;
  if (!at || look_up(*at, AI_NUMERICHOST, found) != 0) return std::nullopt;
  return address_of(*found, text);
}

Status check_address(const std::string& text) {
  TL_TRY_ASSIGN(HostPort at, split(text));
  auto numeric = numeric_address(text);
  if (numeric && lacks_interface(*numeric))
    return fail(Errc::invalid, "\"{}\": a link-local address needs its interface: \"[{}%eth0]:{}\"", text,
                at.host, at.port);
  bool looks_numeric = !at.host.empty() && (at.host.find_first_not_of("0123456789.") == at.host.npos ||
                                            at.host.find(':') != at.host.npos);
  // An address with an interface is accepted here, since the interface may appear later.
  if (!numeric && looks_numeric && at.host.find('%') == at.host.npos)
    return fail(Errc::invalid, "\"{}\" is not an address: \"{}\" is not an IP address", text, at.host);
  return {};
}

Status check_peer_address(const std::string& text) {
  TL_TRY(check_address(text));
  TL_TRY_ASSIGN(HostPort at, split(text));
  if (at.port.find_first_not_of('0') == at.port.npos)
    return fail(Errc::invalid, "\"{}\": port 0 cannot be used: set the port of the replica", text);
  auto numeric = numeric_address(text);
  if (numeric && (numeric->is_wildcard() || numeric->is_multicast()))
    return fail(Errc::invalid, "\"{}\" is not the address of one machine: set the address of the replica",
                text);
  return {};
}

Result<std::vector<Address>> resolve_all(const std::string& text) {
  TL_TRY(check_address(text));
  TL_TRY_ASSIGN(HostPort at, split(text));
  Found found;
  // In a network namespace that has loopback alone, AI_ADDRCONFIG would hide 127.0.0.1.
  bool own = at.host == "localhost" || at.host.find_first_not_of("0123456789.") == at.host.npos ||
             at.host.find(':') != at.host.npos;
  int rc = look_up(at, own ? 0 : AI_ADDRCONFIG, found);
  if (std::size_t scope = at.host.find('%'); rc != 0 && scope != at.host.npos)
    return fail(Errc::unavailable, "\"{}\": this machine has no network interface \"{}\" now", text,
                at.host.substr(scope + 1));
  if (rc != 0) return fail(Errc::unavailable, "\"{}\": {}", text, gai_strerror(rc));
  std::vector<Address> out;
  for (const addrinfo* one = found.get(); one; one = one->ai_next) out.push_back(address_of(*one, text));
  return out;
}

Result<Address> resolve(const std::string& text) {
  TL_TRY_ASSIGN(std::vector<Address> all, resolve_all(text));
  return std::move(all.front());
}

}  // namespace twinloft::repl::net
