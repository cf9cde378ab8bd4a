#include "link_streams.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/stream/socket_stream.h"
#include "twinloft/spool-repl/stream/tls_stream.h"

namespace twinloft::repl::net {

using stream::SocketStream;
using stream::TlsStream;

std::string certificate_name(const Uuid& volume, ReplicaId replica) {
  return fmt::format("twinloft:{}/replica/{}", volume.text(), replica);
}

std::string host_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  // The same link-local address exists on every interface.
  if (address.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) {
    ::inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
    return fmt::format("{}%{}", text, six.sin6_scope_id);
  }
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& in = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&in))
      ::inet_ntop(AF_INET, in.s6_addr + 12, text, sizeof text);
    else
      ::inet_ntop(AF_INET6, &in, text, sizeof text);
  }
  return text;
}

void LinkStreams::add_peer(ReplicaId id, const std::string& certificate_name,
                           const std::vector<std::string>& cables) {
  if (!certificate_name.empty()) names_[id] = certificate_name;
  for (const std::string& cable : cables)
    if (auto address = numeric_address(cable)) cables_[id].insert(host_text(address->storage));
}

Status LinkStreams::check_listen(const Address& address) const {
  if (security_.tls || address.is_loopback() || !cables_.empty()) return {};
  return fail(Errc::invalid,
              "replication over {} needs TLS: set `tls_certificate`, or `secret_file`. Clear text is for "
              "loopback addresses, and for a direct cable (`clear_text = \"direct-cable\"` of a peer)",
              address.text);
}

Result<Way> LinkStreams::way_to(ReplicaId peer, const Address& address) const {
  // By the address too: the configuration may have moved the peer since.
  if (auto cable = cables_.find(peer);
      cable != cables_.end() && cable->second.contains(host_text(address.storage)))
    return Way::clear_text;
  if (security_.tls) return Way::tls;
  if (needs_tls(peer))
    return fail(Errc::invalid,
                "the link to replica {} is buffered, and needs TLS: set `tls_certificate`, or `secret_file`",
                peer);
  if (address.is_loopback()) return Way::clear_text;
  TL_TRY(check_listen(address));
  return fail(Errc::invalid, "replication over {} needs TLS: this peer is not at a direct cable",
              address.text);
}

Result<Way> LinkStreams::way_of_caller(const sockaddr_storage& from) const {
  if (is_at_cable(from)) return Way::clear_text;
  if (security_.tls) return Way::tls;
  Address address;
  address.storage = from;
  if (address.is_loopback()) return Way::clear_text;
  return fail(Errc::denied, "the caller at {}: refused, since it is at no direct cable, and there is no TLS",
              host_text(from));
}

bool LinkStreams::is_at_cable(const sockaddr_storage& address) const {
  const std::string host = host_text(address);
  return std::any_of(cables_.begin(), cables_.end(),
                     [&](const auto& cable) { return cable.second.contains(host); });
}

// In clear text nothing but the place says who the other side is. A replica at a cable is none of another
// place.
ByStream LinkStreams::vouch_by_place(const sockaddr_storage& other) const {
  return {[cables = cables_, only_tls = only_tls_, host = host_text(other),
           at_cable = is_at_cable(other)](ReplicaId replica) -> Status {
    if (only_tls.contains(replica))
      return fail(Errc::denied, "its link is buffered, and needs TLS: it is in clear text");
    auto cable = cables.find(replica);
    bool fits = at_cable ? cable != cables.end() && cable->second.contains(host) : cable == cables.end();
    if (fits) return {};
    return fail(Errc::denied, "it is at {}, which is not the place of replica {}", host, replica);
  }};
}

std::string LinkStreams::name_of(ReplicaId peer) const {
  auto found = names_.find(peer);
  return found != names_.end() ? found->second : certificate_name(volume_, peer);
}

LinkStream LinkStreams::make(Fd socket, Way way, Handshake::Direction direction,
                             const sockaddr_storage& other) const {
  bool dialed = direction == Handshake::Direction::dialed;
  auto plain = std::make_unique<SocketStream>(
      loop_, std::move(socket), dialed ? SocketStream::Begin::connecting : SocketStream::Begin::open);
  if (way == Way::clear_text) return {std::move(plain), vouch_by_place(other)};
  if (way == Way::old_release) {
    TL_CHECK(!security_.old_secret.empty());
    return {std::move(plain), OldRelease{security_.old_secret}};
  }
  TL_CHECK(security_.tls);
  auto secure = std::make_unique<TlsStream>(loop_, std::move(plain), security_.tls,
                                            dialed ? TlsStream::Role::client : TlsStream::Role::server);
  if (!security_.tls->has_certificate()) return {std::move(secure), ByStream{}};
  auto vouch = [&tls = *secure, names = *this](ReplicaId replica) -> Status {
    std::string name = names.name_of(replica);
    if (tls.peer_has_name(name)) return {};
    return fail(Errc::denied,
                "its certificate is for {}, not for replica {} of this volume ({}): make one by `spool-repl "
                "cert issue`, or set `certificate_name` of the peer",
                tls.peer_names(), replica, name);
  };
  return {std::move(secure), ByStream{std::move(vouch)}};
}

LinkProtection LinkStreams::protection_of(const stream::Stream& stream, bool old_release) {
  using Kind = LinkProtection::Kind;
  const auto* secure = dynamic_cast<const TlsStream*>(&stream);
  if (!secure) return {old_release ? Kind::old_release : Kind::clear_text, std::nullopt, false};
  auto expires = secure->peer_expires();
  return {expires ? Kind::certificate : Kind::secret, expires, secure->is_sealed_below()};
}

}  // namespace twinloft::repl::net
