#include "links.h"

#include "core_settings.h"
#include "status_text.h"
#include "twinloft/spool-repl/daemon/link_security.h"

namespace twinloft::repl::daemon {

namespace {
constexpr Duration expiry_interval = std::chrono::hours(1), bandwidth_interval = std::chrono::seconds(10);
}

Result<std::unique_ptr<Links>> Links::start(const VolumeSettings& settings, const Superblock& superblock,
                                            const Around& around, Step step, Trouble trouble,
                                            Trouble certificate) {
  std::unique_ptr<Links> links(
      new Links(around, std::move(step), std::move(trouble), std::move(certificate)));
  if (settings.peers.empty()) return links;
  net::NetOptions o;
  o.self = {superblock.volume, superblock.volume_blocks, superblock.replica,
            [all = settings](ReplicaId peer) { return agreement_with(all, peer).text(); }};
  o.listen = settings.listen;
  TL_TRY_ASSIGN(o.security, read_link_security(settings));
  if (o.security.tls) links->certificate_ends_ = o.security.tls->expires();
  o.timeout = settings.peer_timeout;
  o.pool = around.process.pool;
  o.bandwidth = links->bandwidth_ = around.process.bandwidth;
  for (const PeerSettings& p : settings.peers) {
    links->peers_[p.id] = {p.compression, p.bandwidth, p.packing().link};
    o.peers.push_back({p.id,
                       p.addresses,
                       p.certificate_name,
                       p.direct_cable,
                       p.buffer.has_value(),
                       p.packing(),
                       {},
                       p.paths});
  }
  Links& l = *links;
  l.net_ = std::make_unique<net::PeerNet>(
      around.loop, std::move(o), around.random,
      net::NetEvents{
          [&l](ReplicaId id) {
            std::uint64_t features = l.net_->features(id);
            l.step_(core::PeerUp{id, (features & net::feature_buffers) != 0,
                                 (features & net::feature_reads) != 0,
                                 (features & net::feature_relays) != 0});
          },
          [&l](ReplicaId id) { l.step_(core::PeerDown{id}); },
          [&l](ReplicaId id, PeerMessage m) { l.step_(core::PeerInput{id, std::move(m)}); },
          [&l](ReplicaId id, const std::string& text) { l.trouble_(id, text); },
          [&l](ReplicaId id, const std::string& text, bool other) { l.on_unfit(id, text, other); }});
  TL_TRY(l.net_->start());
  l.watch_certificates();
  l.watch_bandwidth();
  return links;
}

Links::~Links() {
  if (expiry_timer_) loop_.cancel(expiry_timer_);
  if (bandwidth_timer_) loop_.cancel(bandwidth_timer_);
}

// The hours of the plans begin and end.
void Links::watch_bandwidth() {
  unsigned minute = stream::minute_of_day(clock_.wall());
  for (auto& [id, peer] : peers_) {
    peer.rate = peer.bandwidth.at(minute);
    net_->set_rate(id, peer.rate);
  }
  if (bandwidth_) bandwidth_->look_at_clock(minute, loop_.now());
  bandwidth_timer_ = loop_.after(bandwidth_interval, [this] { watch_bandwidth(); });
}

// A peer's certificate is seen in its connection.
void Links::watch_certificates() {
  std::int64_t now = clock_.wall().seconds;
  if (certificate_ends_) expiry_.look(0, *certificate_ends_, now);
  for (const auto& [id, link] : states())
    if (link.protection.peer_expires) expiry_.look(id, *link.protection.peer_expires, now);
  expiry_timer_ = loop_.after(expiry_interval, [this] { watch_certificates(); });
}

std::map<ReplicaId, LinkState> Links::states() const {
  std::map<ReplicaId, LinkState> out;
  stream::Rate all = bandwidth_ ? bandwidth_->rate() : stream::Rate();
  for (const auto& [id, peer] : peers_)
    if (auto link = net_->protection(id))
      out[id] = {*link,
                 peer.rate,
                 all,
                 peer.compression,
                 net_->packing_status(id),
                 shares_ ? std::optional(shares_->state(id)) : std::nullopt,
                 net_->paths(id)};
  return out;
}

void Links::on_unfit(ReplicaId peer, const std::string& text, bool other_arbiter) {
  unfit_[peer] = text;
  step_(core::PeerUnfit{peer, text, other_arbiter});
}

void Links::reload(const std::vector<PeerSettings>& peers, net::LinkSecurity security) {
  if (!net_) return;
  certificate_ends_ = security.tls ? security.tls->expires() : std::nullopt;
  net_->set_security(std::move(security));
  loop_.cancel(expiry_timer_);
  watch_certificates();
  for (const PeerSettings& p : peers) {
    auto known = peers_.find(p.id);
    if (known == peers_.end()) continue;
    net_->set_addresses(p.id, p.addresses);
    net_->set_path_use(p.id, p.paths);
    known->second.compression = p.compression;
    known->second.bandwidth = p.bandwidth;
    net_->set_packing(p.id, {p.compression, known->second.link});
  }
  loop_.cancel(bandwidth_timer_);
  watch_bandwidth();
}

Status Links::set_wanted(bool wanted) {
  if (!net_) return fail(Errc::invalid, "this volume has no peers");
  for (const auto& [id, peer] : peers_) net_->set_wanted(id, wanted);
  return {};
}

void Links::tell_troubles(core::VolumeStatus& status) const {
  if (net_) tell_link_troubles(status, *net_, unfit_);
}

void Links::send(const core::SendRecord& r) {
  pieces_.clear();
  for (const core::IoPiece& p : r.pieces) pieces_.push_back({p.data, p.bytes});
  net_->send_record(r.peer, r.epoch, r.meta_bytes, pieces_);
}

}  // namespace twinloft::repl::daemon
