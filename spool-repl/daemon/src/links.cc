#include "links.h"

#include "core_settings.h"
#include "status_text.h"
#include "twinloft/spool-repl/daemon/check.h"

namespace twinloft::repl::daemon {

Result<std::unique_ptr<Links>> Links::start(const VolumeSettings& settings, const Superblock& superblock,
                                            ports::Loop& loop, Random& random, Step step, Trouble trouble) {
  std::unique_ptr<Links> links(new Links(std::move(step), std::move(trouble)));
  if (settings.peers.empty()) return links;
  net::NetOptions o;
  o.self = {superblock.volume, superblock.volume_blocks, superblock.replica,
            [all = settings](ReplicaId peer) { return agreement_with(all, peer).text(); }};
  o.listen = settings.listen;
  TL_TRY_ASSIGN(o.secret, read_secret(settings.secret_file));
  o.timeout = settings.peer_timeout;
  for (const PeerSettings& p : settings.peers) {
    links->peers_.push_back(p.id);
    o.peers.push_back({p.id, p.address});
  }
  Links& l = *links;
  l.net_ = std::make_unique<net::PeerNet>(
      loop, std::move(o), random,
      net::NetEvents{
          [&l](ReplicaId id) { l.step_(core::PeerUp{id}); },
          [&l](ReplicaId id) { l.step_(core::PeerDown{id}); },
          [&l](ReplicaId id, PeerMessage m) { l.step_(core::PeerInput{id, std::move(m)}); },
          [&l](ReplicaId id, const std::string& text) { l.trouble_(id, text); },
          [&l](ReplicaId id, const std::string& text, bool other) { l.on_unfit(id, text, other); }});
  TL_TRY(l.net_->start());
  return links;
}

void Links::on_unfit(ReplicaId peer, const std::string& text, bool other_arbiter) {
  unfit_[peer] = text;
  step_(core::PeerUnfit{peer, text, other_arbiter});
}

void Links::reload(const std::map<ReplicaId, std::string>& addresses, const std::string& secret) {
  if (!net_) return;
  net_->set_secret(secret);
  for (const auto& [id, address] : addresses) net_->set_address(id, address);
}

Status Links::set_wanted(bool wanted) {
  if (!net_) return fail(Errc::invalid, "this volume has no peers");
  for (ReplicaId id : peers_) net_->set_wanted(id, wanted);
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
