// Makes the stream of a connection to a peer, by the rules of security.h.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/net/handshake.h"
#include "twinloft/spool-repl/net/security.h"
#include "twinloft/spool-repl/ports/loop.h"
#include "twinloft/spool-repl/stream/stream.h"

namespace twinloft::repl::net {

enum class Way { clear_text, tls, old_release };

struct LinkStream {
  std::unique_ptr<stream::Stream> stream;
  Authentication authentication;
};

class LinkStreams {
 public:
  LinkStreams(ports::Loop& loop, const Uuid& volume, LinkSecurity security)
      : loop_(loop), volume_(volume), security_(std::move(security)) {}

  // For later connections.
  void set_security(LinkSecurity security) { security_ = std::move(security); }
  // cables: the peer's numeric addresses, at which it is reached by direct cables. Empty: it is not.
  void add_peer(ReplicaId id, const std::string& certificate_name, const std::vector<std::string>& cables);
  // Clear text to this peer is refused everywhere.
  void require_tls(ReplicaId id) { only_tls_.insert(id); }
  bool needs_tls(ReplicaId id) const { return only_tls_.contains(id); }
  bool accepts_old() const { return !security_.old_secret.empty(); }
  // Whether the address is that of a direct cable.
  bool is_at_cable(const sockaddr_storage& address) const;

  // Errors: Errc::invalid (clear text is not allowed there).
  Status check_listen(const Address& address) const;
  Result<Way> way_to(ReplicaId peer, const Address& address) const;
  Result<Way> way_of_caller(const sockaddr_storage& from) const;

  // socket: connecting if it was dialed. other: the address of the other side.
  LinkStream make(Fd socket, Way way, Handshake::Direction direction, const sockaddr_storage& other) const;
  static LinkProtection protection_of(const stream::Stream& stream, bool old_release);

 private:
  std::string name_of(ReplicaId peer) const;
  ByStream vouch_by_place(const sockaddr_storage& other) const;

  ports::Loop& loop_;
  Uuid volume_;
  LinkSecurity security_;
  std::map<ReplicaId, std::string> names_;  // in certificates, where they differ from certificate_name()
  std::map<ReplicaId, std::set<std::string>> cables_;  // the hosts
  std::set<ReplicaId> only_tls_;
};

// The host of an address, without its port.
std::string host_text(const sockaddr_storage& address);

}  // namespace twinloft::repl::net
