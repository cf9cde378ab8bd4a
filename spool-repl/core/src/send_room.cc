#include "send_room.h"

#include <algorithm>

namespace twinloft::repl::core {

namespace {
constexpr std::uint64_t record_max = record_blocks_max * block_size;
constexpr std::uint64_t spill_read_max = spill_header_bytes + spill_chunk_bytes_max;
static_assert(SendRoom::resync_reserve + record_max <= link_reserve);
static_assert(SendRoom::resync_reserve + record_max + spill_read_max <= buffered_link_reserve);

std::uint64_t of_resync(const Peer::Resync& r) {
  return r.flying_bytes + r.reads * SendRoom::resync_chunk;
}
}  // namespace

SendRoom::~SendRoom() {
  if (!v_.config.link_memory) return;
  for (const Peer& p : peers_) v_.config.link_memory->holds(p.id(), 0);
}

std::uint64_t SendRoom::of_records(const Peer& peer) const {
  if (const auto* m = peer.in<Peer::Matching>()) return m->reading ? spill_read_max : 0;
  const Peer::Streaming* s = peer.streaming();
  if (!s) return 0;
  std::uint64_t bytes = s->sent_bytes;
  if (s->reading || s->reading_chunk) bytes += s->reading_bytes;
  if (s->chunk) bytes += s->chunk->bytes.size();
  return bytes;
}

std::uint64_t SendRoom::on_its_way(const Peer& peer) const {
  return of_records(peer) + (peer.resync() ? of_resync(*peer.resync()) : 0);
}

// Records and a resync have a part of the reserve each, so that neither can stop the other.
std::uint64_t SendRoom::held(const Peer& peer, std::uint64_t more_records, std::uint64_t more_resync) const {
  if (peer.away()) return 0;
  std::uint64_t reserve = peer.config.buffer ? buffered_link_reserve : link_reserve;
  std::uint64_t resync = (peer.resync() ? of_resync(*peer.resync()) : 0) + more_resync;
  return std::max(of_records(peer) + more_records, reserve - resync_reserve) +
         std::max(resync, resync_reserve);
}

bool SendRoom::take(const Peer& peer, std::uint64_t records, std::uint64_t resync) const {
  LinkMemory* memory = v_.config.link_memory.get();
  if (!memory) return true;
  std::uint64_t now = held(peer, 0, 0), then = held(peer, records, resync);
  memory->holds(peer.id(), now);
  return memory->takes(peer.id(), then - now,
                       records > 0 ? LinkMemory::For::records : LinkMemory::For::resync);
}

bool SendRoom::for_records(const Peer& peer, std::uint64_t bytes) const {
  std::uint64_t window = v_.config.send_window_bytes;
  if (v_.config.link_memory && peer.config.buffer) window *= buffered_windows;
  return peer.streaming()->sent_bytes <= window && take(peer, bytes, 0);
}

bool SendRoom::for_resync(const Peer& peer) const {
  return peer.resync()->flying_bytes < v_.config.sync_window_bytes && take(peer, 0, resync_chunk);
}

void SendRoom::update() const {
  if (!v_.config.link_memory) return;
  for (const Peer& p : peers_) v_.config.link_memory->holds(p.id(), held(p, 0, 0));
}

}  // namespace twinloft::repl::core
