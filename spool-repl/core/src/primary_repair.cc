// Requests of the primary that came upon blocks of the data area which cannot be read: they wait until
// repair.h has had its say, and are tried again from the beginning, or fail. They hold no memory meanwhile.
#include <bit>
#include <cerrno>

#include "primary.h"

namespace twinloft::repl::core {

// A replica that is being filled, or has lost what it had acknowledged, holds nothing that counts.
std::vector<Stream> Primary::streams() const {
  std::vector<Stream> streams;
  for (const Peer& p : peers_) {
    const Link* link = v_.find_link(p.config.id);
    if (p.connection != ConnectionState::Connected || !link->up) continue;
    bool holds = !p.filling() && link->state && !link->state->inconsistent;
    streams.push_back({p.config.id, link->connection, p.epoch, (in_sync_ & set_of(p.config.id)) != 0, holds});
  }
  return streams;
}

void Primary::repair(Repairing what, std::vector<Lba> blocks) {
  unsigned& repaired = std::visit([](auto& w) -> unsigned& { return w.repaired(); }, what);
  bool enough = ++repaired > repairs_max;
  if (enough && !blocks.empty()) repair_.note_lost(blocks.front());
  if (enough || v_.failed || lost_) return std::visit([&](auto& w) { after_repair(w, false); }, what);
  repairing_.emplace(repair_.begin(std::move(blocks)), std::move(what));
}

// Of the chunk only what is wanted, and memory does not have: there may be none, if a block between was to
// blame.
void Primary::repair_chunk(SyncRead read) {
  read.slots.clear();
  std::vector<Lba> blocks;
  for (unsigned bit = 0; bit < 64; ++bit) {
    Lba lba{read.chunk.word * 64 + bit};
    if ((read.chunk.mask >> bit & 1) && v_.committed.find(lba).kind == BlockIndex::Kind::absent)
      blocks.push_back(lba);
  }
  repair(std::move(read), std::move(blocks));
}

void Primary::on_repaired(const std::vector<Repair::Finished>& finished) {
  for (const Repair::Finished& f : finished) {
    auto it = repairing_.find(f.ticket);
    if (it == repairing_.end()) continue;
    Repairing what = std::move(it->second);
    repairing_.erase(it);
    std::visit([&](auto& w) { after_repair(w, f.ok); }, what);
  }
}

// What was repaired is in memory until it is on its way home: it is not read from the place that failed.
void Primary::after_repair(ReadRequest& r, bool ok) {
  if (ok)
    stalled_reads_.push_front(r);
  else
    complete(r.request, EIO);
}

void Primary::after_repair(Write& w, bool ok) {
  if (ok && !v_.failed && !lost_)
    stalled_writes_.push_front(std::move(w));
  else
    complete(w.request, EIO);
}

void Primary::after_repair(SyncRead& r, bool ok) {
  if (!wanted(r)) return;
  Peer& peer = *find_peer(r.peer);
  peer.sync->reads--;
  if (ok)
    peer.sync->again.push_back(r.chunk);
  else
    refuse(
        peer,
        fmt::format(
            "the data area here cannot be read among blocks {} to {}, and no other replica gives the content",
            r.chunk.word * 64, r.chunk.word * 64 + 63));
}

}  // namespace twinloft::repl::core
