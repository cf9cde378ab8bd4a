// The source of a resync: the whole volume goes to the peer within the stream of records.
//
// A chunk is read from the data area. A block that the committed image has a newer version of is sent from there, or left out
// if the record that brought it reaches the peer on this very connection. Every other block is the newest committed version, since nothing left memory while it was being read (home_changes). Newer versions that are not
// committed do not matter: they may still be cut off, and if they are committed, the peer hears that after this.
#include <algorithm>

#include "primary.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr std::uint32_t chunk_blocks = 64;
constexpr unsigned reads_max = 4;
constexpr Duration decline_pause = std::chrono::milliseconds(2);
}  // namespace

void Primary::begin_resync(Peer& peer) {
  peer.sync_hold = v_.log.first();
  SyncBegin m{peer.epoch, v_.log.tail_mark(), v_.log.epoch_before(v_.log.first()), {}};
  for (const EpochEntry& e : v_.sb.epochs)
    if (e.start <= m.from.lsn) m.epochs.push_back(e);
  v_.out.notices.push_back({false, fmt::format("replica {} needs a full resync", peer.config.id), NoticeKind::other, peer.config.id});
  v_.out.sends.push_back(Send{peer.config.id, std::move(m)});
}

void Primary::handle(Peer& peer, const SyncReady& m) {
  auto from = v_.log.find(m.from);
  if (peer.connection != ConnectionState::Matching || peer.sync_hold == 0 || m.epoch != peer.epoch || !from)
    return refuse(peer, "it is ready for a resync that nobody began");
  peer.sync_hold = 0;
  peer.connection = ConnectionState::Connected;
  peer.split_brain = false;
  peer.why.clear();
  peer.sent_end = peer.received_end = peer.durable_end = *from;
  peer.sync.emplace().base = m.from.lsn;
  v_.out.notices.push_back({false, fmt::format("replica {} is connected at {}, resync begins", peer.config.id, m.from.lsn.v),
                            NoticeKind::resync_begun, peer.config.id});
}

void Primary::pump_sync(Peer& peer) {
  if (!peer.sync || peer.connection != ConnectionState::Connected) return;
  Peer::Sync& s = *peer.sync;
  if (v_.now < s.pause_until || v_.log.committed_end() < s.not_before) return;
  while (s.reads < reads_max && s.flying_bytes < v_.config.sync_window_bytes) {
    if (v_.read_arena.free() < chunk_blocks + v_.read_arena.size() / 2) return;  // clients' reads come first
    if (!s.again.empty()) {
      auto [lba, blocks] = s.again.back();
      s.again.pop_back();
      read_chunk(peer, lba, blocks);
      continue;
    }
    if (s.next >= v_.sb.volume_blocks) break;
    auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(chunk_blocks, v_.sb.volume_blocks - s.next));
    read_chunk(peer, s.next, blocks);
    s.next += blocks;
  }
  bool all_there = s.next >= v_.sb.volume_blocks && s.reads == 0 && s.again.empty() && s.flying.empty();
  if (!all_there || s.end_sent || peer.sent_end < v_.log.end()) return;
  s.end_sent = true;
  v_.out.sends.push_back(Send{peer.config.id, SyncEnd{peer.epoch, v_.commit_lsn()}});
}

void Primary::read_chunk(Peer& peer, std::uint64_t lba, std::uint32_t blocks) {
  std::uint64_t op = next_op_++;
  SyncRead read{peer.config.id, peer.connection_no, lba, {}, v_.home_changes};
  HomeRead home{make_token(TokenKind::sync_read, op), Lba{lba}, {}};
  for (std::uint32_t i = 0; i < blocks; ++i) {
    read.slots.push_back(v_.read_arena.take());
    home.pieces.push_back({v_.read_arena.data(read.slots.back()), block_size});
  }
  v_.out.home_reads.push_back(std::move(home));
  sync_reads_.emplace(op, std::move(read));
  peer.sync->reads++;
}

void Primary::on_sync_read(std::uint64_t n, int error) {
  auto it = sync_reads_.find(n);
  TL_CHECK(it != sync_reads_.end());
  SyncRead read = std::move(it->second);
  sync_reads_.erase(it);
  Peer* peer = find_peer(read.peer);
  bool wanted = peer->sync && peer->connection_no == read.connection_no && peer->connection == ConnectionState::Connected;
  SyncData m;
  if (wanted && error == 0 && read.home_changes == v_.home_changes) {
    for (std::size_t i = 0; i < read.slots.size(); ++i) {
      Lba lba{read.lba + i};
      auto found = v_.committed.find(lba);
      if (found.kind != BlockIndex::Kind::absent && Lsn{found.serial} > peer->sync->base) continue;
      const std::byte* block = found.kind == BlockIndex::Kind::data ? v_.arena.data(found.slot) : v_.read_arena.data(read.slots[i]);
      bool zero = found.kind == BlockIndex::Kind::zeros || std::all_of(block, block + block_size, [](std::byte b) { return b == std::byte{0}; });
      ExtentKind kind = zero ? ExtentKind::zeros : ExtentKind::data;
      if (!m.extents.empty() && m.extents.back().kind == kind && m.extents.back().lba + m.extents.back().blocks == lba)
        m.extents.back().blocks++;
      else
        m.extents.push_back({lba, 1, kind});
      if (!zero) m.payload.insert(m.payload.end(), block, block + block_size);
    }
  }
  for (Slot slot : read.slots) v_.read_arena.unref(slot);
  if (!wanted) return;
  Peer::Sync& s = *peer->sync;
  s.reads--;
  if (error != 0) return refuse(*peer, fmt::format("the data area here cannot be read at block {} (errno {})", read.lba, error));
  if (read.home_changes != v_.home_changes) return read_chunk(*peer, read.lba, static_cast<std::uint32_t>(read.slots.size()));
  if (m.extents.empty()) return;
  m.epoch = peer->epoch;
  m.seq = ++s.seq;
  std::uint64_t bytes = m.payload.size() + block_size;
  s.flying.push_back({m.seq, bytes, read.lba, static_cast<std::uint32_t>(read.slots.size())});
  s.flying_bytes += bytes;
  v_.out.sends.push_back(Send{peer->config.id, std::move(m)});
}

void Primary::handle(Peer& peer, const SyncAck& m) {
  if (!peer.sync || m.epoch != peer.epoch || m.seq > peer.sync->seq)
    return refuse(peer, "it acknowledged resync data that it was not sent");
  Peer::Sync& s = *peer.sync;
  if (m.declined) {
    auto it = std::find_if(s.flying.begin(), s.flying.end(), [&](const auto& f) { return f.seq == m.seq; });
    if (it == s.flying.end()) return refuse(peer, "it declined resync data that it was not sent");
    s.again.push_back({it->lba, it->blocks});
    s.flying_bytes -= it->bytes;
    s.flying.erase(it);
    s.pause_until = v_.now + decline_pause;
    return;
  }
  s.acked = std::max(s.acked, m.seq);
  while (!s.flying.empty() && s.flying.front().seq <= s.acked) {
    s.flying_bytes -= s.flying.front().bytes;
    s.flying.pop_front();
  }
}

void Primary::peer_state(ReplicaId id, const NodeState& state) {
  Peer* peer = find_peer(id);
  if (!peer || !peer->sync || state.inconsistent || !peer->sync->end_sent) return;
  peer->sync.reset();
  v_.out.notices.push_back({false, fmt::format("resync of replica {} is finished", id), NoticeKind::resync_finished, id});
}

}  // namespace twinloft::repl::core
