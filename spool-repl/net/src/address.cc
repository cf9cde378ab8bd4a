#include "twinloft/spool-repl/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

namespace twinloft::repl::net {

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
    return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
  }
  auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

Result<Address> resolve(const std::string& text) {
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
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
  // In a namespace with nothing but loopback, AI_ADDRCONFIG would hide 127.0.0.1.
  if (host == "localhost" || host.find_first_not_of("0123456789.") == std::string::npos || host.find(':') != host.npos)
    hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (rc != 0) return fail(Errc::invalid, "\"{}\": {}", text, gai_strerror(rc));
  Address out;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  out.text = text;
  freeaddrinfo(found);
  return out;
}

}  // namespace twinloft::repl::net
