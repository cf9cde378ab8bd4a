// Sites: replicas that get their records from a replica near them, and relays that change or omit records.
#include "node.h"

namespace twinloft::repl::sim {

// Two or three sites, and in some clusters a replica that is reached through another one.
void Cluster::choose_sites() {
  if (nodes_.size() < 3 || random_.below(2) == 0) return;
  std::uint64_t sites = 2 + random_.below(2);
  for (auto& n : nodes_) n->site = fmt::format("site {}", random_.below(sites));
  if (random_.below(3) == 0) {
    Node& n = *nodes_[random_.below(nodes_.size())];
    n.through = nodes_[(n.index + 1 + random_.below(nodes_.size() - 1)) % nodes_.size()]->id;
  }
  relays_lie_ = random_.below(4) == 0;
  relay_patience_ = std::chrono::milliseconds(random_.below(2) == 0 ? 4 : 40);
  coverage_.hit("a far site");
}

void Cluster::add_sites(const Node& n, core::Config& c) {
  c.site = n.site;
  c.relay_patience = relay_patience_;
  c.relay_rest = std::chrono::milliseconds(5);
  for (core::PeerConfig& p : c.peers) {
    const Node& peer = *nodes_[p.id - 1];
    p.site = peer.site;
    if (peer.through != n.id && !n.without.contains(peer.through)) p.through = peer.through;
  }
}

// False: the relay keeps the record to itself.
bool Cluster::passes_on(const Node& relay, RecordMessage& record) {
  if (relay.is_primary()) return true;
  coverage_.hit("relay: a record passed on");
  if (!relays_lie_ || random_.below(20) != 0) return true;
  std::vector<std::byte>& part = record.payload.empty() || random_.below(2) == 0 ? record.meta
                                                                                 : record.payload;
  if (random_.below(3) == 0) return coverage_.hit("fault: a relay omits a record"), false;
  coverage_.hit("fault: a relay changes a record");
  part[random_.below(part.size())] ^= std::byte{1};
  return true;
}

void Cluster::note_relay(const Node& from, const PeerMessage& message) {
  if (const auto* m = std::get_if<TakeFrom>(&message))
    coverage_.hit(m->relay == 0 ? "relay: records from the primary again" : "relay: records from a relay");
  if (const auto* m = std::get_if<RelayLost>(&message)) {
    auto says = [&](const char* what) { return m->why.find(what) != std::string::npos; };
    if (says("another record") || says("other content")) coverage_.hit("relay: another record refused");
    if (says("connection to it is lost")) coverage_.hit("relay: its connection is lost");
    if (says("does not keep")) coverage_.hit("relay: it does not keep the records");
    if (says("follows no primary")) coverage_.hit("relay: it lost its primary");
    if (says("cannot be read") || says("is damaged")) coverage_.hit("relay: its journal cannot be read");
  }
  if (std::holds_alternative<Subscribe>(message)) {
    for (const auto& p : from.core->status().peers)
      if (p.relays_to) coverage_.hit("relay: a chain of two");
  }
}

}  // namespace twinloft::repl::sim
