#include "relay_control.h"

#include <algorithm>

#include "relay_plan.h"

namespace twinloft::repl::core {

namespace {
constexpr unsigned rest_times_max = 64;
}

// A resync needs blocks and records in one order, so its target gets both from here.
bool RelayControl::fit(const Peer& peer) const {
  const Peer::Streaming* s = peer.streaming();
  const Link* link = v_.find_link(peer.id());
  return s && s->acked && !s->resync && !peer.filling() && link->up && link->knows_relays && !link->refused;
}

bool RelayControl::may_take(const Peer& who, const Peer& relay) const {
  // The link of the two may be at fault, so neither takes from the other.
  auto rests = [&](const Peer& p, const Peer& of) {
    auto rest = p.rests.find(of.id());
    return rest != p.rests.end() && v_.now < rest->second.until;
  };
  if (rests(who, relay) || rests(relay, who)) return false;
  // A replica ahead of its relay would wait for it. Later, its acknowledgement may just come first.
  RecordNo has = who.received_end(), there = relay.received_end();
  if (there >= has) return true;
  if (!who.config.buffer && who.streaming()->source.relay != relay.id()) return false;
  auto pos = [&](RecordNo no) { return v_.log.pos_before(std::clamp(no, v_.log.first(), v_.log.end())).v; };
  return pos(has) - pos(there) <= v_.config.send_window_bytes;
}

void RelayControl::rest(Peer& peer, const std::string& why) {
  ReplicaId relay = peer.streaming()->source.relay;
  auto& rest = peer.rests.try_emplace(relay, Peer::Rest{v_.now, v_.config.relay_rest}).first->second;
  if (rest.until > v_.now) return;  // its records come from elsewhere soon
  rest.until = v_.now + rest.next;
  rest.next = std::min(2 * rest.next, rest_times_max * v_.config.relay_rest);
  v_.out.notices.push_back(
      {true, fmt::format("replica {} does not get its records from replica {}: {}", peer.id(), relay, why),
       NoticeKind::relay, peer.id()});
}

// True: what the relay has did not come here in time. Over a buffered link any progress is enough. A relay
// that has nothing more itself is not to blame.
bool RelayControl::has_failed(Peer& peer) {
  Peer::Streaming::Source& source = peer.streaming()->source;
  RecordNo has = peer.received_end();
  const Peer* relay = peers_.find(source.relay);
  RecordNo there = std::min(relay->received_end(), peer.sent_end());
  bool moves = peer.config.buffer && has != source.received_end;
  if (source.due_end != 0 && has < source.due_end && !moves) return v_.now - source.since >= patience();
  source.due_end = there > has ? there : 0;
  source.received_end = has;
  source.since = v_.now;
  // A long time without a failure ends its bad record.
  auto rest = peer.rests.find(source.relay);
  if (rest != peer.rests.end() && v_.now >= rest->second.until + rest->second.next) peer.rests.erase(rest);
  return false;
}

// No further than the relay is sent records itself, so that a peer is not expected to have what its relay
// lacks.
RecordNo RelayControl::marks_end(const Peer& peer) const {
  const Peer* relay = peers_.find(peer.streaming()->source.relay);
  return relay->is_streaming() ? relay->sent_end() : 0;
}

void RelayControl::advance() {
  bool sites = std::any_of(peers_.begin(), peers_.end(),
                           [](const Peer& p) { return !p.config.site.empty() || p.config.through != 0; });
  if (!sites || v_.failed || term_.lost()) return;
  for (Peer& p : peers_) {
    if (!p.is_streaming() || p.streaming()->source.relay == 0 || !p.streaming()->source.answered) continue;
    if (has_failed(p))
      rest(p, fmt::format("it did not bring what it had for {} ms",
                          std::chrono::duration_cast<std::chrono::milliseconds>(patience()).count()));
  }
  // This runs with every event, so the common case of one replica at each site ends early.
  auto has_relay = [](const Peer& p) { return p.is_streaming() && p.streaming()->source.relay != 0; };
  std::vector<RelayCandidate> candidates;
  for (const Peer& p : peers_)
    if (fit(p))
      candidates.push_back({p.id(), p.config.site, p.config.through, p.config.buffer.has_value(),
                            p.config.protocol, p.received_end(), p.streaming()->source.relay});
  if (candidates.size() < 2 && std::none_of(peers_.begin(), peers_.end(), has_relay)) return;
  auto plan = plan_relays(v_.config.site, candidates, [&](const auto& who, const auto& relay) {
    return may_take(*peers_.find(who.id), *peers_.find(relay.id));
  });
  for (Peer& p : peers_) {
    if (!p.is_streaming()) continue;
    auto planned = plan.find(p.id());
    ReplicaId relay = planned == plan.end() ? 0 : planned->second;
    const Peer::Streaming& s = *p.streaming();
    if (s.source.answered && s.source.relay != relay && !s.reads()) ask(p, relay);
  }
}

void RelayControl::ask(Peer& peer, ReplicaId relay) {
  Peer::Streaming& s = *peer.streaming();
  s.source = {.relay = relay, .seq = ++seq_, .answered = false, .since = v_.now};
  v_.out.sends.push_back(Send{peer.id(), TakeFrom{peer.epoch, seq_, relay}});
  std::string text = relay == 0
                         ? fmt::format("replica {} gets its records from here", peer.id())
                         : fmt::format("replica {} gets its records from replica {}", peer.id(), relay);
  v_.out.notices.push_back({false, std::move(text), NoticeKind::relay, peer.id()});
}

bool RelayControl::answers(Peer& peer, const TakeAfter& m) {
  Peer::Streaming* s = peer.streaming();
  if (s && m.epoch == peer.epoch && !s->source.answered && s->source.seq == m.seq) return true;
  refuse(v_, peer, "unrequested answer about a relay");
  return false;
}

// A peer that has been asked again meanwhile may still report the relay before.
void RelayControl::handle(Peer& peer, const RelayLost& m) {
  Peer::Streaming* s = peer.streaming();
  if (!s || m.epoch != peer.epoch || m.seq > s->source.seq || m.seq == 0)
    return refuse(v_, peer, "unexpected report about a relay");
  if (m.seq < s->source.seq) return;
  if (s->source.relay == 0 || !s->source.answered)
    return refuse(v_, peer, "report about a relay that it was not asked for");
  rest(peer, m.why);
}

std::optional<Instant> RelayControl::next_tick() const {
  std::optional<Instant> next;
  auto consider = [&](Instant at) { next = std::min(next.value_or(at), at); };
  for (const Peer& p : peers_) {
    const Peer::Streaming* s = p.streaming();
    if (!s) continue;
    if (s->source.relay != 0 && s->source.answered && s->source.due_end != 0)
      consider(s->source.since + patience());
    for (const auto& [relay, rest] : p.rests)
      if (rest.until > v_.now) consider(rest.until);
  }
  return next;
}

}  // namespace twinloft::repl::core
