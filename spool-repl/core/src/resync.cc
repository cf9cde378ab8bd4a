// The source of a resync: what the peer may lack goes to it within the stream of records. That is what its
// bitmap here says, or the whole volume where the bitmap does not reach back to it; then, and where an
// earlier resync was not finished, digests find out what has to be sent.
//
// A chunk is read from the data area. A block that the committed image has a newer version of is sent from
// there, or left out if the record that brought it reaches the peer on this very connection. Every other
// block is the newest committed version, since nothing left memory while it was being read (home_changes).
// Newer versions that are not committed do not matter: they may still be cut off, and if they are committed,
// the peer hears that after this.
#include <algorithm>
#include <array>
#include <bit>

#include "primary.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr unsigned reads_max = 4, checks_max = 8;
constexpr std::uint64_t progress_blocks_min = 1024;  // the target hears of no less
constexpr Duration decline_pause = std::chrono::milliseconds(2);
}  // namespace

// A replica into which a resync was not finished says what it was before. That counts unless force has broken
// the chain since: what it has been sent meanwhile may then not be in the history here.
bool Primary::vouches(const NodeState& s) const {
  return s.base != base_unknown && !maybe_forced_behind(epochs(), s.base) &&
         history_holds(v_.sb.epochs, v_.log.last_mark().lsn, s.base_epoch, s.base);
}

// Whether the bitmap here tells all that a replica lacks whose content is this history up to there.
bool Primary::bitmap_reaches(const Peer& peer, Lsn content) const {
  const DirtyMap* d = v_.find_dirty(peer.config.id);
  return d && d->slot().known && d->slot().since.lsn <= content;
}

// Nothing that is known of it counts until it is consistent: its marks stay as they are, and collect what
// comes.
void Primary::begin_filling(Peer& peer) {
  peer.incomplete = true;
  v_.find_link(peer.config.id)->covered_end = 0;
}

// `common_end`: up to where the records here are the peer's too, where that is known. Its own judgement
// begins there.
void Primary::begin_resync(Peer& peer, RecordNo common_end) {
  if (waits_for_epoch(peer)) return;
  begin_filling(peer);
  peer.sync_hold = std::max({v_.log.first(), v_.readable_from, common_end});
  const Link* link = v_.find_link(peer.config.id);
  bool unfinished = link->state && link->state->inconsistent;
  // A consistent one looks itself whether it has the record that we name.
  bool reaches = unfinished ? vouches(*link->state) && bitmap_reaches(peer, link->state->base)
                            : bitmap_reaches(peer, peer.peer_last);
  peer.sync_whole = !reaches;
  peer.sync_compare = unfinished;
  SyncBegin m{
      peer.epoch, v_.log.mark_before(peer.sync_hold), v_.log.epoch_before(peer.sync_hold), !reaches, {}, {},
      {}};
  if (reaches)
    m.since_epoch = v_.find_dirty(peer.config.id)->slot().since_epoch,
    m.since = v_.find_dirty(peer.config.id)->slot().since;
  m.epochs = epochs();
  v_.out.notices.push_back(
      {false, fmt::format("replica {} needs a {} resync", peer.config.id, reaches ? "bitmap" : "full"),
       NoticeKind::other, peer.config.id});
  v_.out.sends.push_back(Send{peer.config.id, std::move(m)});
}

void Primary::handle(Peer& peer, const SyncReady& m) {
  auto from = v_.log.find(m.from);
  if (peer.connection != ConnectionState::Matching || peer.sync_hold == 0 || m.epoch != peer.epoch || !from)
    return refuse(peer, "it is ready for a resync that nobody began");
  peer.sync_hold = 0;
  peer.connection = ConnectionState::Connected;
  v_.end_split_brain(peer.config.id);
  peer.why.clear();
  peer.sent_end = peer.received_end = peer.durable_end = *from;
  start_sync(peer, m.from.lsn, peer.sync_whole || m.whole, peer.sync_compare || peer.sync_whole || m.whole);
  v_.out.notices.push_back({false,
                            fmt::format("replica {} is connected at {}, resync of {} blocks begins",
                                        peer.config.id, m.from.lsn.v, peer.sync->total),
                            NoticeKind::resync_begun, peer.config.id});
}

void Primary::start_sync(Peer& peer, Lsn base, bool whole, bool compare) {
  begin_filling(peer);
  Peer::Sync& s = peer.sync.emplace();
  s.base = base;
  // Its data area may hold, in part, whatever was committed before: all of that is in the log here by now,
  // committed or not.
  s.not_before = v_.log.end();
  s.whole = whole;
  s.compare = compare;
  s.total = whole ? v_.sb.volume_blocks : v_.find_dirty(peer.config.id)->count();
}

// Only now: records that the peer has already may have been committed here since the connection was made.
void Primary::choose_blocks(Peer& peer) {
  Peer::Sync& s = *peer.sync;
  s.chosen = true;
  if (s.nothing) {
    s.total = 0;
  } else if (s.whole) {
    s.todo.assign(bitmap_words(v_.sb.volume_blocks), ~std::uint64_t{0});
    if (v_.sb.volume_blocks % 64 != 0) s.todo.back() = (std::uint64_t{1} << v_.sb.volume_blocks % 64) - 1;
  } else {
    s.todo = v_.find_dirty(peer.config.id)->words();
    s.total = v_.find_dirty(peer.config.id)->count();
  }
}

// While writes wait for a replica that is away, nothing tells how long they take.
void Primary::advance_pace() {
  bool working = std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.sync.has_value(); });
  if (suspended()) suspended_until_ = v_.now;
  if (!pace_.advance(v_.now, working)) return;
  Pace::Waiting waiting;
  waiting.asked = !waiters_.empty() || !stalled_writes_.empty() || !reads_.empty() || !stalled_reads_.empty();
  auto note = [&](Pace::Kind kind, Instant since) {
    auto& oldest = waiting.since[static_cast<std::size_t>(kind)];
    if (since > suspended_until_ || kind == Pace::Kind::read)
      oldest = std::min(oldest.value_or(since), since);
  };
  if (!waiters_.empty()) note(Pace::Kind::flush, waiters_.front().since);
  for (const auto& [op, read] : reads_) note(Pace::Kind::read, read.request.since);
  for (const ReadRequest& r : stalled_reads_) note(Pace::Kind::read, r.since);
  pace_.judge(waiting);
}

// The peer behind the last one that was read for is the first: where little may be read, one peer would take
// it all.
void Primary::pump_syncs() {
  advance_pace();
  std::size_t first = turn_;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    std::size_t at = (first + i) % peers_.size();
    std::uint64_t before = next_op_;
    pump_sync(peers_[at]);
    if (next_op_ != before) turn_ = (at + 1) % peers_.size();
  }
}

void Primary::pump_sync(Peer& peer) {
  if (!peer.sync || peer.connection != ConnectionState::Connected) return;
  Peer::Sync& s = *peer.sync;
  if (v_.now < s.pause_until || v_.log.committed_end() < s.not_before) return;
  if (!s.chosen) choose_blocks(peer);
  while (s.reads < reads_max && s.flying_bytes < v_.config.sync_window_bytes) {
    if (v_.read_arena.free() < 64 + v_.read_arena.size() / 2) return;  // clients' reads come first
    if (!pace_.ready()) break;
    if (!s.again.empty()) {
      Peer::Chunk chunk = s.again.back();
      s.again.pop_back();
      read_chunk(peer, chunk, false);
      continue;
    }
    while (s.next < s.todo.size() && s.todo[s.next] == 0) ++s.next;
    if (s.next >= s.todo.size() || s.checking.size() + s.reads >= checks_max) break;
    Peer::Chunk chunk{s.next, s.todo[s.next]};
    ++s.next;
    s.done += static_cast<std::uint64_t>(std::popcount(chunk.mask));
    read_chunk(peer, chunk, s.compare);
  }
  if (!s.told || s.done - *s.told >= std::max(progress_blocks_min, s.total / 100)) {
    s.told = s.done;
    v_.out.sends.push_back(Send{peer.config.id, SyncProgress{peer.epoch, s.done, s.total}});
  }
  bool all_there = s.next >= s.todo.size() && s.reads == 0 && s.again.empty() && s.checking.empty() &&
                   s.flying.empty();
  if (!all_there || s.end_sent || peer.sent_end < v_.log.end()) return;
  s.end_sent = true;
  v_.out.sends.push_back(Send{peer.config.id, SyncEnd{peer.epoch, v_.commit_lsn()}});
}

void Primary::read_chunk(Peer& peer, Peer::Chunk chunk, bool check) {
  std::uint64_t op = next_op_++;
  auto first = static_cast<unsigned>(std::countr_zero(chunk.mask)),
       end = static_cast<unsigned>(std::bit_width(chunk.mask));
  pace_.took(std::uint64_t{end - first} * block_size);
  SyncRead read{peer.config.id, peer.connection_no, chunk, check, {}, v_.home_changes};
  bool begun = false;
  for (unsigned i = first; i < end; ++i) {
    Lba lba{chunk.word * 64 + i};
    read.slots.push_back(v_.read_arena.take());
    bool skip = chunk.repairs > 0 &&
                (!(chunk.mask >> i & 1) || v_.committed.find(lba).kind != BlockIndex::Kind::absent);
    if (!skip && (!begun || !v_.home_map.follows(lba)))
      v_.out.home_reads.push_back({make_token(TokenKind::sync_read, op), v_.home_map.at(lba), {}}),
          read.outstanding++;
    if (!skip) add_piece(v_.out.home_reads.back().pieces, v_.read_arena.data(read.slots.back()), block_size);
    begun = !skip;
  }
  peer.sync->reads++;
  if (read.outstanding == 0)
    end_chunk(std::move(read));
  else
    sync_reads_.emplace(op, std::move(read));
}

// The newest committed version, or nullptr: its record reaches the peer on this connection.
const std::byte* Primary::chunk_block(const Peer& peer, const SyncRead& read, unsigned bit) const {
  static constexpr std::array<std::byte, block_size> zeros{};
  auto found = v_.committed.find(Lba{read.chunk.word * 64 + bit});
  if (found.kind != BlockIndex::Kind::absent && Lsn{found.serial} > peer.sync->base) return nullptr;
  if (found.kind == BlockIndex::Kind::data) return v_.arena.data(found.slot);
  if (found.kind == BlockIndex::Kind::zeros) return zeros.data();
  return v_.read_arena.data(read.slots[bit - static_cast<unsigned>(std::countr_zero(read.chunk.mask))]);
}

void Primary::on_sync_read(std::uint64_t n, int error) {
  auto it = sync_reads_.find(n);
  TL_CHECK(it != sync_reads_.end());
  if (error != 0) it->second.failed = true;
  if (--it->second.outstanding > 0) return;
  SyncRead read = std::move(it->second);
  sync_reads_.erase(it);
  end_chunk(std::move(read));
}

bool Primary::wanted(const SyncRead& read) {
  Peer* peer = find_peer(read.peer);
  return peer->sync && peer->connection_no == read.connection_no &&
         peer->connection == ConnectionState::Connected;
}

void Primary::end_chunk(SyncRead read) {
  Peer* peer = find_peer(read.peer);
  bool stale = read.home_changes != v_.home_changes;
  if (!stale && !read.failed) read.failed = holds_wrong(read);
  if (wanted(read) && !read.failed && !stale)
    (read.check ? send_check(*peer, read) : send_chunk(*peer, read));
  for (Slot slot : read.slots) v_.read_arena.unref(slot);
  if (!wanted(read)) return;
  if (read.failed) return repair_chunk(std::move(read));  // it counts as under way until that has ended
  peer->sync->reads--;
  if (stale) read_chunk(*peer, read.chunk, read.check);
}

// What is sent is to be what was written there: a block that is not would be spread.
bool Primary::holds_wrong(const SyncRead& read) const {
  auto first = static_cast<unsigned>(std::countr_zero(read.chunk.mask));
  for (unsigned bit = first; bit < 64; ++bit) {
    bool sent = (read.chunk.mask >> bit & 1) != 0;
    if (sent && v_.is_wrong(Lba{read.chunk.word * 64 + bit}, v_.read_arena.data(read.slots[bit - first])))
      return true;
  }
  return false;
}

void Primary::send_check(Peer& peer, const SyncRead& read) {
  SyncCheck m{peer.epoch, 0, read.chunk.word, 0, {}};
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (!(read.chunk.mask >> bit & 1)) continue;
    const std::byte* block = chunk_block(peer, read, bit);
    if (!block) continue;
    m.mask |= std::uint64_t{1} << bit;
    m.digests.push_back(hash128({block, block_size}));
  }
  if (m.mask == 0) return;
  m.seq = ++peer.sync->checks;
  peer.sync->checking.push_back({m.word, m.mask});
  v_.out.sends.push_back(Send{peer.config.id, std::move(m)});
}

void Primary::handle(Peer& peer, const SyncDiffer& m) {
  bool asked = peer.sync && m.epoch == peer.epoch && !peer.sync->checking.empty() &&
               m.seq == peer.sync->checks - peer.sync->checking.size() + 1 &&
               (m.mask & ~peer.sync->checking.front().mask) == 0;
  if (!asked) return refuse(peer, "it answered a check that it was not sent");
  if (m.mask != 0) peer.sync->again.push_back({peer.sync->checking.front().word, m.mask});
  peer.sync->checking.pop_front();
}

void Primary::send_chunk(Peer& peer, const SyncRead& read) {
  SyncData m;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (!(read.chunk.mask >> bit & 1)) continue;
    const std::byte* block = chunk_block(peer, read, bit);
    if (!block) continue;
    Lba lba{read.chunk.word * 64 + bit};
    bool zero = std::all_of(block, block + block_size, [](std::byte b) { return b == std::byte{0}; });
    ExtentKind kind = zero ? ExtentKind::zeros : ExtentKind::data;
    if (!m.extents.empty() && m.extents.back().kind == kind &&
        m.extents.back().lba + m.extents.back().blocks == lba)
      m.extents.back().blocks++;
    else
      m.extents.push_back({lba, 1, kind});
    if (!zero) m.payload.insert(m.payload.end(), block, block + block_size);
  }
  if (m.extents.empty()) return;
  Peer::Sync& s = *peer.sync;
  m.epoch = peer.epoch;
  m.seq = ++s.seq;
  std::uint64_t bytes = m.payload.size() + block_size;
  s.declined = false;  // it flies again
  s.flying.push_back({m.seq, bytes, read.chunk});
  s.flying_bytes += bytes;
  v_.out.sends.push_back(Send{peer.config.id, std::move(m)});
}

void Primary::handle(Peer& peer, const SyncAck& m) {
  if (!peer.sync || m.epoch != peer.epoch || m.seq > peer.sync->seq)
    return refuse(peer, "it acknowledged resync data that it was not sent");
  Peer::Sync& s = *peer.sync;
  if (m.declined) {
    auto it = std::find_if(s.flying.begin(), s.flying.end(), [&](const auto& f) { return f.seq == m.seq; });
    if (it == s.flying.end()) return refuse(peer, "it declined resync data that it was not sent");
    s.again.push_back(it->chunk);
    s.flying_bytes -= it->bytes;
    s.flying.erase(it);
    s.pause_until = v_.now + decline_pause;
    s.declined = true;
    return;
  }
  s.declined = false;
  s.acks++;
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
  peer->incomplete = false;
  v_.out.notices.push_back(
      {false, fmt::format("resync of replica {} is finished", id), NoticeKind::resync_finished, id});
}

}  // namespace twinloft::repl::core
