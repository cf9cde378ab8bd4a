#include "twinloft/lmtpd/net/networks.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

namespace twinloft::lmtpd {

namespace {

bool bit(const std::array<std::uint8_t, 16>& address, unsigned at) {
  return address[at / 8] >> (7 - at % 8) & 1;
}

}  // namespace

// "::ffff:192.0.2.0/120" is an IPv4 network: peers are compared in that form (unmapped()).
void Networks::unmap(Network& network, unsigned& bits) {
  constexpr unsigned mapped = 96;
  in6_addr address{};
  std::memcpy(&address, network.address.data(), sizeof address);
  if (network.family != AF_INET6 || network.prefix < mapped || !IN6_IS_ADDR_V4MAPPED(&address)) return;
  Network out{AF_INET, {}, network.prefix - mapped};
  std::memcpy(out.address.data(), network.address.data() + 12, 4);
  network = out;
  bits = 32;
}

Status Networks::add(const std::string& word) {
  if (word == "unix") {
    unix_ = true;
    return {};
  }
  std::size_t slash = word.find('/');
  std::string host = word.substr(0, slash);
  Network out{host.find(':') == std::string::npos ? AF_INET : AF_INET6, {}, 0};
  unsigned bits = out.family == AF_INET ? 32 : 128;
  if (::inet_pton(out.family, host.c_str(), out.address.data()) != 1)
    return fail(
        Errc::invalid,
        "\"{}\" is not a network: expected \"192.0.2.0/24\", \"2001:db8::/32\", an address, or \"unix\"",
        word);
  out.prefix = bits;
  if (slash != std::string::npos) {
    std::string_view prefix = std::string_view(word).substr(slash + 1);
    auto [end, code] = std::from_chars(prefix.data(), prefix.data() + prefix.size(), out.prefix);
    if (code != std::errc() || end != prefix.data() + prefix.size() || out.prefix > bits)
      return fail(Errc::invalid, "\"{}\": expected a prefix of 0 to {} bits after the slash", word, bits);
  }
  unmap(out, bits);
  for (unsigned at = out.prefix; at < bits; ++at)
    if (bit(out.address, at))
      return fail(Errc::invalid, "\"{}\": the address has bits set after its prefix of {}", word, out.prefix);
  networks_.push_back(out);
  return {};
}

Result<Networks> Networks::parse(std::span<const std::string> words) {
  Networks out;
  for (const std::string& word : words) TL_TRY(out.add(word));
  return out;
}

bool Networks::contains(const sockaddr_storage& peer) const {
  std::array<std::uint8_t, 16> address{};
  if (peer.ss_family == AF_INET)
    std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, 4);
  else if (peer.ss_family == AF_INET6)
    std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, 16);
  else
    return unix_;
  for (const Network& n : networks_) {
    bool within = n.family == peer.ss_family;
    for (unsigned at = 0; within && at < n.prefix; ++at) within = bit(address, at) == bit(n.address, at);
    if (within) return true;
  }
  return false;
}

sockaddr_storage unmapped(const sockaddr_storage& peer) {
  const auto& from = reinterpret_cast<const sockaddr_in6&>(peer);
  if (peer.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&from.sin6_addr)) return peer;
  sockaddr_storage out{};
  auto& to = reinterpret_cast<sockaddr_in&>(out);
  to.sin_family = AF_INET;
  to.sin_port = from.sin6_port;
  std::memcpy(&to.sin_addr, from.sin6_addr.s6_addr + 12, 4);
  return out;
}

std::string address_text(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = {};
  if (peer.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, text, sizeof text);
  else if (peer.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, text, sizeof text);
  return text[0] ? text : "unix";
}

}  // namespace twinloft::lmtpd
