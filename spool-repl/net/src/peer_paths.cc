// The further paths of a link, see peer_net.h.
#include <algorithm>
#include <utility>

#include "connection.h"
#include "path_calls.h"
#include "twinloft/spool-repl/net/peer_net.h"

namespace twinloft::repl::net {

void PeerNet::call_further_paths(Peer& p) {
  if (!p.calls) {
    PathCalls::Around around{
        loop_,
        [this](const std::string& text, Found then) { find_addresses(text, std::move(then)); },
        [this, id = p.config.id](const Address& address, unsigned number) {
          Peer& peer = *find(id);
          JoinPath join{peer.connection->link_key(), number, peer.number};
          return call(peer, address, &join);
        },
        [this, id = p.config.id](unsigned number, const std::string& why) {
          events_.notice(id, fmt::format("{} cannot be used: {}", path_text(*find(id), number), why));
        },
        options_.redial,
        options_.lookup_pause_max,
        options_.redial_max};
    p.calls = std::make_unique<PathCalls>(std::move(around));
  }
  for (unsigned n = 0; n < p.config.addresses.size(); ++n)
    if (!p.connection->paths().has_path(n) || is_stale(p, n)) p.calls->need(n, p.config.addresses[n]);
}

// Of the dialing side, whose addresses have changed: a path that leads to an older one.
bool PeerNet::is_stale(const Peer& p, unsigned number) {
  auto place = p.places.find(number);
  return number >= p.config.addresses.size() || place == p.places.end() ||
         place->second != p.config.addresses[number];
}

// Those that are needed stay until others can be used.
void PeerNet::drop_stale_paths(Peer& p) {
  for (unsigned n = 0; n < paths_max; ++n)
    if (p.connection->paths().has_path(n) && is_stale(p, n))
      p.connection->paths().close_path(n, "its address is not configured any more");
}

void PeerNet::on_joining(Connection& c) {
  Peer* p = find(c.peer());
  bool is_there = p && p->wanted && p->connection && p->connection->has_paths() &&
                  p->connection->link_key() == c.joined()->link;
  if (!is_there) return c.close(fmt::format("{}: a path of a link that is not there any more", c.name()));
  c.accept_path();
  if (c.is_open()) take_path(c);
}

// In a later turn, since the connection is on the call stack.
void PeerNet::take_path(Connection& c) {
  Peer& p = *find(c.peer());
  Joining joining{p.calls ? p.calls->take(c) : nullptr, true, ""};
  if (joining.connection) {
    unsigned number = c.joined()->number;
    if (number < p.config.addresses.size()) joining.place = p.config.addresses[number];
  } else {
    auto caller = std::find_if(callers_.begin(), callers_.end(),
                               [&](const Caller& k) { return k.connection.get() == &c; });
    if (caller == callers_.end()) return c.close("it belongs to nobody");
    joining = {std::move(caller->connection), false, caller->host};
    callers_.erase(caller);
  }
  joining_.push_back(std::move(joining));
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    for (Joining& each : std::exchange(joining_, {})) join(each);
  });
}

// The link may have ended since, or the path.
void PeerNet::join(Joining& joining) {
  Connection& c = *joining.connection;
  Peer& peer = *find(c.peer());
  const JoinPath path = *c.joined();
  if (!peer.connection || !peer.connection->has_paths() || peer.connection->link_key() != path.link)
    return c.close("the link is not there any more");
  if (!c.is_open()) {
    if (joining.dialed && peer.calls) peer.calls->lost(path.number, "its connection has ended");
    return;
  }
  stream::PathsStream& link = peer.connection->paths();
  if (!joining.dialed) {
    link.set_number_of_first(path.first);
    peer.places.try_emplace(path.first, peer.first_place);
  }
  peer.places[path.number] = joining.place;
  Connection::TakenPath taken = c.take_path();
  link.add(path.number, std::move(taken.stream), taken.received, taken.unsent);
}

// Where it leads, or, for a path that is not there, the configured address.
std::string PeerNet::place_of(const Peer& p, unsigned number) const {
  if (auto at = p.places.find(number); at != p.places.end()) return at->second;
  return dials(p) && number < p.config.addresses.size() ? p.config.addresses[number] : "";
}

std::string PeerNet::path_text(const Peer& p, unsigned number) const {
  std::string place = place_of(p, number);
  return fmt::format("path {} to replica {}{}", number + 1, p.config.id,
                     place.empty() ? "" : " (" + place + ")");
}

void PeerNet::on_path_usable(Connection& c, unsigned number) {
  Peer* p = owner_of(c);
  if (!p) return;
  p->lost.erase(number);
  if (p->calls) {
    p->calls->usable(number);
    drop_stale_paths(*p);
  }
  events_.notice(p->config.id, fmt::format("{} is there", path_text(*p, number)));
}

// A path that was never usable is reported by its calls, once for each reason.
void PeerNet::on_path_lost(Connection& c, const stream::PathsStream::LostPath& path) {
  Peer* p = owner_of(c);
  if (!p || c.paths().has_path(path.number)) return;  // it has been replaced since
  std::string name = path_text(*p, path.number);
  if (path.on_purpose)
    events_.notice(p->config.id, fmt::format("{} is not used any more: {}", name, path.reason));
  else if (path.was_usable)
    events_.notice(p->config.id, fmt::format("{} is lost: {}. The link goes on", name, path.reason));
  if (dials(*p)) p->places.erase(path.number);
  if (path.on_purpose) return;
  if (!p->calls || path.number < p->config.addresses.size()) p->lost[path.number] = path.reason;
  if (!p->calls || path.number >= p->config.addresses.size()) return;
  p->calls->need(path.number, p->config.addresses[path.number]);
  p->calls->lost(path.number, path.reason);
}

std::vector<PathStatus> PeerNet::paths(ReplicaId id) const {
  const Peer* p = find(id);
  std::vector<PathStatus> out;
  if (!p || !p->up || !p->connection->has_paths()) return out;
  std::map<unsigned, PathStatus> all;
  bool dialed = dials(*p);
  for (unsigned n = 0; dialed && n < p->config.addresses.size(); ++n) all[n].why = p->calls->trouble(n);
  for (const auto& [number, why] : p->lost)
    if (auto& path = all[number]; path.why.empty()) path.why = why;
  bool carries = true;  // until one does, of spares
  for (const auto& s : p->connection->paths().path_states()) {
    PathStatus& path = all[s.number];
    path.why.clear();
    path.state = s.usable ? PathStatus::State::usable : PathStatus::State::trial;
    path.carries = s.usable && carries;
    if (path.carries && p->config.paths == stream::PathUse::spares) carries = false;
    path.sent = s.sent;
    path.received = s.arrived;
    if (s.line) path.round_trip = s.line->round_trip;
  }
  for (auto& [number, path] : all) {
    path.number = number;
    path.address = place_of(*p, number);
    out.push_back(std::move(path));
  }
  return out;
}

}  // namespace twinloft::repl::net
