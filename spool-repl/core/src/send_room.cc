#include "send_room.h"

#include <algorithm>

#include "twinloft/base/check.h"

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

std::uint64_t SendRoom::held(const Peer& peer) const {
  if (const auto* m = peer.in<Peer::Matching>()) return m->reading ? spill_read_max : 0;
  const Peer::Streaming* s = peer.streaming();
  if (!s) return 0;
  std::uint64_t bytes = s->sent_bytes;
  if (s->reading || s->reading_chunk) bytes += s->reading_bytes;
  if (s->chunk) bytes += s->chunk->bytes.size();
  return bytes + std::max(resync_reserve, s->resync ? of_resync(*s->resync) : 0);
}

bool SendRoom::for_records(const Peer& peer, std::uint64_t bytes) const {
  LinkMemory* memory = v_.config.link_memory.get();
  std::uint64_t window = v_.config.send_window_bytes;
  if (memory && peer.config.buffer) window *= buffered_windows;
  if (peer.streaming()->sent_bytes > window) return false;
  if (!memory) return true;
  memory->holds(peer.id(), held(peer));
  return memory->takes(peer.id(), bytes);
}

bool SendRoom::for_resync(const Peer& peer) const {
  const Peer::Resync& r = *peer.resync();
  if (r.flying_bytes >= v_.config.sync_window_bytes) return false;
  LinkMemory* memory = v_.config.link_memory.get();
  if (!memory || of_resync(r) + resync_chunk <= resync_reserve) return true;
  memory->holds(peer.id(), held(peer));
  return memory->takes(peer.id(), resync_chunk);
}

void SendRoom::update() const {
  if (!v_.config.link_memory) return;
  for (const Peer& p : peers_) v_.config.link_memory->holds(p.id(), held(p));
}

}  // namespace twinloft::repl::core
