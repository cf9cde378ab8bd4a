#include "resync_source.h"

#include <algorithm>
#include <array>
#include <bit>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr unsigned reads_max = 4, checks_max = 8;
constexpr std::uint64_t progress_blocks_min = 1024;  // between two progress messages
constexpr Duration decline_pause = std::chrono::milliseconds(2);
}  // namespace

ResyncSource::ResyncSource(Volume& volume, Repair& repair, Peers& peers, const Term& term,
                           const SendRoom& room)
    : v_(volume),
      peers_(peers),
      term_(term),
      room_(room),
      pace_(volume.config.resync_latency_target, volume.config.resync_rate_min),
      repairing_(repair) {}

// A replica with an unfinished resync names the base of its content. The base counts unless a later epoch may
// have been forced: then the resync may have brought content that is not in the history here.
bool ResyncSource::vouches(const NodeState& s) const {
  return vouches_for(s, v_.sb.epochs, v_.log.last_mark().lsn, term_.epochs());
}

// Whether the bitmap here has all blocks that the peer may lack, if its content is this history up to
// `content`.
bool ResyncSource::bitmap_reaches(const Peer& peer, Lsn content) const {
  const DirtyMap* d = v_.find_dirty(peer.id());
  return d && d->slot().known && d->slot().since.lsn <= content;
}

// Until the peer is consistent, its acknowledgements do not clear marks. New marks are added.
void ResyncSource::begin_filling(Peer& peer) {
  peer.incomplete = true;
  v_.find_link(peer.id())->covered_end = 0;
}

void ResyncSource::offer(Peer& peer, RecordNo common_end) {
  TL_CHECK(peer.in<Peer::Matching>() && peer.in<Peer::Matching>()->answer);
  TL_CHECK(!term_.in_flight());  // R6: the record of the newest epoch is durable before the offer
  Lsn peer_last = peer.in<Peer::Matching>()->answer->last.lsn;
  begin_filling(peer);
  const Link* link = v_.find_link(peer.id());
  bool unfinished = link->state && link->state->inconsistent;
  // A consistent peer checks by itself whether it has the record at `since`.
  bool reaches = unfinished ? vouches(*link->state) && bitmap_reaches(peer, link->state->base->lsn)
                            : bitmap_reaches(peer, peer_last);
  RecordNo hold = std::max({v_.log.first(), v_.readable_from, common_end});
  peer.offer({hold, !reaches, unfinished});
  SyncBegin m{peer.epoch, v_.log.mark_before(hold), v_.log.epoch_before(hold), !reaches, {}, {}, {}};
  if (reaches)
    m.since_epoch = v_.find_dirty(peer.id())->slot().since_epoch,
    m.since = v_.find_dirty(peer.id())->slot().since;
  m.epochs = term_.epochs();
  v_.out.notices.push_back(
      {false, fmt::format("replica {} needs a {} resync", peer.id(), reaches ? "bitmap" : "full"),
       NoticeKind::other, peer.id()});
  v_.out.sends.push_back(Send{peer.id(), std::move(m)});
}

void ResyncSource::handle(Peer& peer, const SyncReady& m) {
  auto from = v_.log.find(m.from);
  const Peer::OfferingResync* offering = peer.in<Peer::OfferingResync>();
  if (!offering || m.epoch != peer.epoch || !from)
    return refuse(v_, peer, "answer to a resync that was not offered");
  bool whole = offering->whole || m.whole, compare = offering->compare || whole;
  v_.end_split_brain(peer.id());
  Peer::Streaming& stream = peer.stream(*from, v_.log.mark_before(*from));
  stream.received_end = peer.durable_end = *from;
  peer.durable_mark = v_.log.mark_before(*from);
  start(peer, m.from.lsn, whole, compare);
  v_.out.notices.push_back({false,
                            fmt::format("replica {} is connected at {}, resync of {} blocks begins",
                                        peer.id(), m.from.lsn.v, peer.resync()->total),
                            NoticeKind::resync_begun, peer.id()});
}

// The content that arrived in the earlier resync is unknown here, so digests are compared.
void ResyncSource::resume(Peer& peer, const NodeState& state, Lsn base) {
  TL_CHECK(peer.is_streaming() && state.inconsistent);
  bool vouched = vouches(state);
  start(peer, base, !vouched || !bitmap_reaches(peer, state.base->lsn), true);
  peer.resync()->nothing = vouched && state.base->lsn >= base;
}

void ResyncSource::start(Peer& peer, Lsn base, bool whole, bool compare) {
  TL_CHECK(peer.is_streaming() && !peer.resync());
  TL_CHECK(whole || v_.find_dirty(peer.id()));
  begin_filling(peer);
  Peer::Resync& s = peer.streaming()->resync.emplace();
  s.base = base;
  // The peer's data area may already have parts of all earlier committed records. All of them are in the log
  // here now, so the resync waits until they are committed here too.
  s.not_before = v_.log.end();
  s.whole = whole;
  s.compare = compare;
  s.total = whole ? v_.sb.volume_blocks : v_.find_dirty(peer.id())->count();
  TL_CHECK(peer.filling());
}

// Runs after the commit of not_before, so that the bitmap has marks for all records that the peer may have.
void ResyncSource::choose_blocks(Peer& peer, Peer::Resync& s) {
  TL_CHECK(!s.chosen && s.todo.empty());
  s.chosen = true;
  if (s.nothing) {
    s.total = 0;
  } else if (s.whole) {
    s.todo.assign(bitmap_words(v_.sb.volume_blocks), ~std::uint64_t{0});
    if (v_.sb.volume_blocks % 64 != 0) s.todo.back() = (std::uint64_t{1} << v_.sb.volume_blocks % 64) - 1;
  } else {
    s.todo = v_.find_dirty(peer.id())->words();
    s.total = v_.find_dirty(peer.id())->count();
  }
}

bool ResyncSource::advance_pace() {
  bool working = std::any_of(peers_.begin(), peers_.end(),
                             [](const Peer& p) { return p.resync() != nullptr; });
  if (term_.suspended()) pace_.note_suspended(v_.now);
  return pace_.advance(v_.now, working);
}

// The peers take turns. Otherwise one peer could use the whole read rate.
void ResyncSource::pump() {
  std::size_t first = turn_;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    std::size_t at = (first + i) % peers_.size();
    std::uint64_t before = next_op_;
    pump(peers_[at]);
    if (next_op_ != before) turn_ = (at + 1) % peers_.size();
  }
}

void ResyncSource::pump(Peer& peer) {
  if (!peer.is_streaming() || !peer.resync()) return;
  Peer::Resync& s = *peer.resync();
  if (v_.now < s.pause_until || v_.log.committed_end() < s.not_before) return;
  if (!s.chosen) choose_blocks(peer, s);
  while (s.reads < reads_max) {
    if (v_.read_arena.free() < 64 + v_.read_arena.size() / 2) return;  // clients' reads come first
    if (!pace_.ready()) break;
    while (s.next < s.todo.size() && s.todo[s.next] == 0) ++s.next;
    bool more = s.next < s.todo.size() && s.checking.size() + s.reads < checks_max;
    if ((s.again.empty() && !more) || !room_.for_resync(peer)) break;
    if (!s.again.empty()) {
      Peer::Chunk chunk = s.again.back();
      s.again.pop_back();
      read_chunk(peer, chunk, false);
      continue;
    }
    Peer::Chunk chunk{s.next, s.todo[s.next]};
    ++s.next;
    s.done += static_cast<std::uint64_t>(std::popcount(chunk.mask));
    read_chunk(peer, chunk, s.compare);
  }
  if (!s.told || s.done - *s.told >= std::max(progress_blocks_min, s.total / 100)) {
    s.told = s.done;
    v_.out.sends.push_back(Send{peer.id(), SyncProgress{peer.epoch, s.done, s.total}});
  }
  bool all_there = s.next >= s.todo.size() && s.reads == 0 && s.again.empty() && s.checking.empty() &&
                   s.flying.empty();
  if (!all_there || s.end_sent || peer.sent_end() < v_.log.end()) return;
  s.end_sent = true;
  v_.out.sends.push_back(Send{peer.id(), SyncEnd{peer.epoch, v_.commit_lsn()}});
}

void ResyncSource::read_chunk(Peer& peer, Peer::Chunk chunk, bool check) {
  std::uint64_t op = next_op_++;
  auto first = static_cast<unsigned>(std::countr_zero(chunk.mask)),
       end = static_cast<unsigned>(std::bit_width(chunk.mask));
  pace_.took(std::uint64_t{end - first} * block_size);
  ChunkRead read{peer.id(), peer.connection_no, chunk, check, {}, v_.home_changes};
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
  peer.resync()->reads++;
  if (read.outstanding > 0) {
    reads_.emplace(op, std::move(read));
    return;
  }
  end_chunk(std::move(read));
  TL_CHECK(peer.is_streaming());  // all blocks are in memory, so none was unreadable
}

// The newest committed version of the block. nullptr: its record reaches the peer on this connection.
const std::byte* ResyncSource::chunk_block(const Peer& peer, const ChunkRead& read, unsigned bit) const {
  auto found = v_.committed.find(Lba{read.chunk.word * 64 + bit});
  if (found.kind != BlockIndex::Kind::absent && Lsn{found.serial} > peer.resync()->base) return nullptr;
  if (const std::byte* block = v_.content_of(found)) return block;
  return v_.read_arena.data(read.slots[bit - static_cast<unsigned>(std::countr_zero(read.chunk.mask))]);
}

void ResyncSource::on_sync_read(std::uint64_t n, int error) {
  auto it = reads_.find(n);
  TL_CHECK(it != reads_.end());
  if (error != 0) it->second.failed = true;
  if (--it->second.outstanding > 0) return;
  ChunkRead read = std::move(it->second);
  reads_.erase(it);
  end_chunk(std::move(read));
}

bool ResyncSource::wanted(const ChunkRead& read) const {
  const Peer* peer = peers_.find(read.peer);
  return peer->connection_no == read.connection_no && peer->is_streaming() && peer->resync();
}

void ResyncSource::end_chunk(ChunkRead read) {
  Peer* peer = peers_.find(read.peer);
  bool stale = read.home_changes != v_.home_changes;
  if (!stale && !read.failed) read.failed = holds_wrong(read);
  if (wanted(read) && !read.failed && !stale)
    (read.check ? send_check(*peer, read) : send_chunk(*peer, read));
  for (Slot slot : read.slots) v_.read_arena.unref(slot);
  if (!wanted(read)) return;
  if (read.failed) return repair_chunk(std::move(read));  // counts as in flight until the repair has ended
  peer->resync()->reads--;
  if (stale) read_chunk(*peer, read.chunk, read.check);
}

// A block with wrong content is not sent, since the peer would store the corruption.
bool ResyncSource::holds_wrong(const ChunkRead& read) const {
  auto first = static_cast<unsigned>(std::countr_zero(read.chunk.mask));
  for (unsigned bit = first; bit < 64; ++bit) {
    bool sent = (read.chunk.mask >> bit & 1) != 0;
    if (sent && v_.is_wrong(Lba{read.chunk.word * 64 + bit}, v_.read_arena.data(read.slots[bit - first])))
      return true;
  }
  return false;
}

void ResyncSource::send_check(Peer& peer, const ChunkRead& read) {
  SyncCheck m{peer.epoch, 0, read.chunk.word, 0, {}};
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (!(read.chunk.mask >> bit & 1)) continue;
    const std::byte* block = chunk_block(peer, read, bit);
    if (!block) continue;
    m.mask |= std::uint64_t{1} << bit;
    m.digests.push_back(hash128({block, block_size}));
  }
  if (m.mask == 0) return;
  Peer::Resync& s = *peer.resync();
  m.seq = ++s.checks;
  s.checking.push_back({m.word, m.mask});
  v_.out.sends.push_back(Send{peer.id(), std::move(m)});
}

void ResyncSource::handle(Peer& peer, const SyncDiffer& m) {
  Peer::Resync* s = peer.resync();
  bool asked = s && m.epoch == peer.epoch && !s->checking.empty() &&
               m.seq == s->checks - s->checking.size() + 1 && (m.mask & ~s->checking.front().mask) == 0;
  if (!asked) return refuse(v_, peer, "answer to a resync check that was not sent");
  if (m.mask != 0) s->again.push_back({s->checking.front().word, m.mask});
  s->checking.pop_front();
}

void ResyncSource::send_chunk(Peer& peer, const ChunkRead& read) {
  SyncData m;
  for (unsigned bit = 0; bit < 64; ++bit) {
    if (!(read.chunk.mask >> bit & 1)) continue;
    const std::byte* block = chunk_block(peer, read, bit);
    if (!block) continue;
    Lba lba{read.chunk.word * 64 + bit};
    bool zero = is_zero({block, block_size});
    ExtentKind kind = zero ? ExtentKind::zeros : ExtentKind::data;
    if (!m.extents.empty() && m.extents.back().kind == kind &&
        m.extents.back().lba + m.extents.back().blocks == lba)
      m.extents.back().blocks++;
    else
      m.extents.push_back({lba, 1, kind});
    if (!zero) m.payload.insert(m.payload.end(), block, block + block_size);
  }
  if (m.extents.empty()) return;
  Peer::Resync& s = *peer.resync();
  m.epoch = peer.epoch;
  m.seq = ++s.seq;
  std::uint64_t bytes = m.payload.size() + block_size;
  s.declined = false;
  s.flying.push_back({m.seq, bytes, read.chunk});
  s.flying_bytes += bytes;
  v_.out.sends.push_back(Send{peer.id(), std::move(m)});
}

void ResyncSource::handle(Peer& peer, const SyncAck& m) {
  if (!peer.resync() || m.epoch != peer.epoch || m.seq > peer.resync()->seq)
    return refuse(v_, peer, "acknowledgement of resync data that was not sent");
  Peer::Resync& s = *peer.resync();
  if (m.declined) {
    auto it = std::find_if(s.flying.begin(), s.flying.end(), [&](const auto& f) { return f.seq == m.seq; });
    if (it == s.flying.end()) return refuse(v_, peer, "rejection of resync data that was not sent");
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

void ResyncSource::peer_state(Peer& peer, const NodeState& state) {
  Peer::Resync* s = peer.resync();
  if (!s || state.inconsistent || !s->end_sent) return;
  peer_is_consistent(peer);
}

void ResyncSource::peer_is_consistent(Peer& peer) {
  const Peer::Resync& s = *peer.resync();
  TL_CHECK(peer.incomplete && s.chosen && s.next >= s.todo.size());
  TL_CHECK(s.again.empty() && s.checking.empty() && s.flying.empty() && s.reads == 0);
  peer.end_resync();
  peer.incomplete = false;
  v_.out.notices.push_back({false, fmt::format("resync of replica {} is finished", peer.id()),
                            NoticeKind::resync_finished, peer.id()});
}

// Repairs the blocks of the mask that are not in memory. None, if only a block outside the mask has failed.
void ResyncSource::repair_chunk(ChunkRead read) {
  read.slots.clear();
  std::vector<Lba> blocks;
  for (unsigned bit = 0; bit < 64; ++bit) {
    Lba lba{read.chunk.word * 64 + bit};
    if ((read.chunk.mask >> bit & 1) && v_.committed.find(lba).kind == BlockIndex::Kind::absent)
      blocks.push_back(lba);
  }
  if (auto failed = repairing_.begin(std::move(read), std::move(blocks), v_.failed || term_.lost()))
    after_repair(*failed, false);
}

bool ResyncSource::on_repaired(const Repair::Finished& finished) {
  auto read = repairing_.take(finished.ticket);
  if (read) after_repair(*read, finished.ok);
  return read.has_value();
}

void ResyncSource::after_repair(const ChunkRead& r, bool ok) {
  if (!wanted(r)) return;
  Peer& peer = *peers_.find(r.peer);
  peer.resync()->reads--;
  if (ok)
    peer.resync()->again.push_back(r.chunk);
  else
    refuse(v_, peer,
           fmt::format("the data area of replica {} cannot be read among blocks {} to {}, and no other "
                       "replica has the content",
                       v_.sb.replica, r.chunk.word * 64, r.chunk.word * 64 + 63));
}

std::optional<Instant> ResyncSource::next_tick() const {
  std::optional<Instant> next = pace_.next();
  for (const Peer& p : peers_) {
    const Peer::Resync* s = p.resync();
    if (s && s->pause_until > v_.now) next = std::min(next.value_or(s->pause_until), s->pause_until);
  }
  return next;
}

}  // namespace twinloft::repl::core
