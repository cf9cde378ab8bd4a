#include "config_peers.h"

#include <algorithm>

#include "link_shares.h"
#include "twinloft/spool-repl/net/handshake.h"

namespace twinloft::repl::daemon {

namespace {

constexpr std::uint64_t buffer_bytes_min = 16u << 20;  // several of the largest records

void read_buffer(const Table& p, const toml::table& table, const VolumeSettings& v, PeerSettings& peer) {
  using WhenFull = core::BufferConfig::WhenFull;
  core::BufferConfig buffer;
  p.size("buffer", buffer.bytes);
  p.choice<WhenFull>("buffer_full", {{"slow-down", WhenFull::slow_down}, {"resync", WhenFull::resync}},
                     buffer.when_full);
  if (!table.contains("buffer")) {
    if (table.contains("buffer_full"))
      p.error(table.get("buffer_full"), "buffer_full", "applies to a buffered link: set `buffer` too");
    return;
  }
  if (peer.protocol != core::Protocol::A)
    p.error(table.get("buffer"), "buffer", "needs protocol = \"A\": no acknowledgement waits for this peer");
  if (buffer.bytes < buffer_bytes_min)
    p.error(table.get("buffer"), "buffer", fmt::format("at least {} MiB", buffer_bytes_min >> 20));
  if (table.contains("clear_text"))
    p.error(table.get("buffer"), "buffer", "is for long lines: such a link needs TLS, not clear_text");
  else if (v.tls.certificate.empty() && v.secret_file.empty())
    p.error(table.get("buffer"), "buffer",
            "is for long lines: such a link needs TLS. Set tls_certificate, or secret_file");
  peer.buffer = buffer;
}

void read_compression(const Table& p, const toml::table& table, PeerSettings& peer) {
  std::string text = "none";
  p.text("compression", text);
  auto setting = compress::parse_setting(text);
  if (!setting) return p.error(table.get("compression"), "compression", setting.error().message);
  peer.compression = *setting;
}

void read_site(const Table& t, std::string& site) {
  t.text("site", site);
  if (site.size() > 64) t.error(t.raw().get("site"), "site", "longer than 64 bytes");
}

// Whether the way of the records to a peer leads back to it.
bool is_circle(const std::vector<PeerSettings>& peers, ReplicaId id) {
  ReplicaId at = id;
  for (std::size_t steps = 0; steps <= peers.size(); ++steps) {
    auto peer = std::find_if(peers.begin(), peers.end(), [&](const PeerSettings& p) { return p.id == at; });
    if (peer == peers.end() || peer->through == 0) return false;
    at = peer->through;
    if (at == id) return true;
  }
  return false;
}

// Replicas of one site take from each other, and the primary chooses who from whom.
void check_sites(const Table& t, const toml::array& peers, const VolumeSettings& v) {
  for (const toml::node& node : peers) {
    const toml::table* table = node.as_table();
    auto id = table ? table->get_as<std::int64_t>("id") : nullptr;
    auto peer = std::find_if(v.peers.begin(), v.peers.end(),
                             [&](const PeerSettings& p) { return id && p.id == id->get(); });
    if (!table || !id || peer == v.peers.end()) continue;
    Table p(t, *table, fmt::format("volume.{}.peer", v.name));
    auto through = std::find_if(v.peers.begin(), v.peers.end(),
                                [&](const PeerSettings& other) { return other.id == peer->through; });
    const toml::node* at = table->get("through");
    if (!peer->site.empty() && v.site.empty())
      p.error(table->get("site"), "site",
              fmt::format("needs volume.{}.site: where this replica stands", v.name));
    if (peer->through == 0) continue;
    if (through == v.peers.end())
      p.error(at, "through", fmt::format("replica {} is no [[volume.{}.peer]]", peer->through, v.name));
    else if (peer->through == peer->id || is_circle(v.peers, peer->id))
      p.error(at, "through", "the way of the records would lead in a circle");
    else if (!peer->buffer && through->buffer)
      p.error(at, "through", fmt::format("replica {} is behind a buffer, and this peer is not", through->id));
    else if (through->protocol < peer->protocol)
      p.error(
          at, "through",
          fmt::format("replica {} has a weaker protocol: acknowledgements would wait for it", through->id));
  }
}

}  // namespace

void read_bandwidth(const Table& t, stream::BandwidthPlan& plan) {
  if (t.raw().contains("bandwidth")) {
    std::uint64_t rate = stream::rate_min;
    t.size("bandwidth", rate);
    if (rate < stream::rate_min)
      t.error(t.raw().get("bandwidth"), "bandwidth",
              fmt::format("at least {} KiB a second", stream::rate_min >> 10));
    plan = stream::BandwidthPlan(rate);
  }
  const toml::node* node = t.raw().get("bandwidth_at");
  if (!node) return;
  const toml::array* list = node->as_array();
  if (!list) return t.error(node, "bandwidth_at", "expected a list of texts, such as [\"08:00-18:00 4MiB\"]");
  for (const auto& each : *list) {
    auto text = each.value_exact<std::string>();
    if (!text)
      t.error(&each, "bandwidth_at", "expected a list of texts, such as [\"08:00-18:00 4MiB\"]");
    else if (Status added = plan.add_hours(*text); !added)
      t.error(&each, "bandwidth_at", added.error().message);
  }
}

void read_link_memory(const Table& t, NodeSettings& node) {
  if (!t.raw().contains("link_memory")) return;
  std::uint64_t least = link_memory_min(node.volumes), bytes = least;
  t.size("link_memory", bytes);
  if (bytes < least)
    t.error(
        t.raw().get("link_memory"), "link_memory",
        fmt::format("at least {} MiB for the links of this file: {} MiB for each, {} MiB for a buffered one",
                    least >> 20, core::link_reserve >> 20, core::buffered_link_reserve >> 20));
  node.link_memory = bytes;
}

void read_peers(const Table& t, VolumeSettings& v) {
  const toml::array* peers = t.raw().get_as<toml::array>("peer");
  if (!peers && t.raw().contains("peer"))
    return t.error(t.raw().get("peer"), "peer", fmt::format("expected [[volume.{}.peer]]", v.name));
  read_site(t, v.site);
  if (!peers) return;
  for (const auto& node : *peers) {
    const toml::table* table = node.as_table();
    if (!table) {
      t.error(&node, "peer", fmt::format("expected [[volume.{}.peer]]", v.name));
      continue;
    }
    Table p(t, *table, fmt::format("volume.{}.peer", v.name));
    PeerSettings peer;
    p.allow({"id", "address", "protocol", "certificate_name", "clear_text", "buffer", "buffer_full",
             "bandwidth", "bandwidth_at", "compression", "paths", "site", "through"});
    p.integer("id", 1, replica_id_max, peer.id, true);
    p.texts("address", peer.addresses, net::paths_max, true);
    for (const std::string& address : peer.addresses) p.peer_address("address", address);
    p.choice<stream::PathUse>(
        "paths", {{"spares", stream::PathUse::spares}, {"together", stream::PathUse::together}}, peer.paths);
    if (table->contains("paths") && peer.addresses.size() == 1)
      p.error(table->get("paths"), "paths", "applies to several paths: `address` is one of the peer's");
    using core::Protocol;
    p.choice<Protocol>("protocol", {{"A", Protocol::A}, {"B", Protocol::B}, {"C", Protocol::C}},
                       peer.protocol);
    read_buffer(p, *table, v, peer);
    read_compression(p, *table, peer);
    read_site(p, peer.site);
    p.integer("through", 1, replica_id_max, peer.through);
    read_bandwidth(p, peer.bandwidth);
    p.text("certificate_name", peer.certificate_name);
    p.choice<bool>("clear_text", {{"direct-cable", true}}, peer.direct_cable);
    auto is_numeric = [](const std::string& address) { return net::numeric_address(address).has_value(); };
    if (peer.direct_cable && !std::all_of(peer.addresses.begin(), peer.addresses.end(), is_numeric))
      p.error(table->get("clear_text"), "clear_text",
              "needs a numeric address of the peer: the answer of a name server could lead elsewhere");
    if (peer.certificate_name.starts_with('.'))
      p.error(table->get("certificate_name"), "certificate_name", "would be the name of many hosts");
    for (const PeerSettings& other : v.peers)
      if (!peer.certificate_name.empty() && other.certificate_name == peer.certificate_name)
        p.error(table->get("certificate_name"), "certificate_name",
                fmt::format("is replica {}'s: each of the two could take the other's place", other.id));
    if (peer.id == v.replica) p.error(table->get("id"), "id", "is this replica's own");
    for (const PeerSettings& other : v.peers)
      if (other.id == peer.id) p.error(table->get("id"), "id", "is used twice");
    v.peers.push_back(std::move(peer));
  }
  check_sites(t, *peers, v);
  if (v.peers.size() > bitmap_slots)
    return t.error(t.raw().get("peer"), "peer", fmt::format("more than {} peers", bitmap_slots));
}

}  // namespace twinloft::repl::daemon
