// The further paths of a link, see peer_net.h.
#include <algorithm>
#include <utility>

#include "connection.h"
#include "first_bytes.h"
#include "link_streams.h"
#include "listener.h"
#include "name_lookup.h"
#include "path_calls.h"
#include "short_record.h"
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
  std::shared_ptr<Connection> keep = p.calls ? p.calls->take(c) : nullptr;
  bool dialed = keep != nullptr;
  auto caller = std::find_if(callers_.begin(), callers_.end(),
                             [&](const Caller& k) { return k.connection.get() == &c; });
  const auto& addresses = p.config.addresses;
  std::string place = dialed && c.joined()->number < addresses.size() ? addresses[c.joined()->number] : "";
  if (caller != callers_.end()) {
    keep = std::move(caller->connection);
    place = caller->host;
    callers_.erase(caller);
  }
  if (!keep) return;
  loop_.post([this, alive = std::weak_ptr(alive_), keep, dialed, place] {
    if (alive.expired()) return;
    Peer& peer = *find(keep->peer());
    const JoinPath join = *keep->joined();
    bool fits = peer.connection && peer.connection->has_paths() && peer.connection->link_key() == join.link;
    if (keep->is_open() && fits) {
      Connection::TakenPath path = keep->take_path();
      if (!dialed) {
        peer.connection->paths().set_number_of_first(join.first);
        peer.places.try_emplace(join.first, peer.first_place);
      }
      peer.places[join.number] = place;
      peer.connection->paths().add(join.number, std::move(path.stream), path.received, path.unsent);
    } else if (fits && dialed && peer.calls) {
      peer.calls->lost(join.number, "its connection has ended");
    } else {
      keep->close("the link is not there any more");
    }
  });
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
