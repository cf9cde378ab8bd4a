#include "primary.h"

#include <algorithm>
#include <bit>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

Primary::Primary(Volume& volume, Checkpointer& checkpointer, Repair& repair)
    : v_(volume),
      checkpointer_(checkpointer),
      pending_(volume.arena),
      pace_(volume.config.resync_latency_target, volume.config.resync_rate_min),
      repair_(repair) {
  for (const PeerConfig& p : v_.config.peers) peers_.emplace_back().config = p;
  // What recovery found above the commit point is this primary's history too: visible to reads, not
  // acknowledged.
  Log& log = v_.log;
  open_serial_ = log.end() - log.first() + 1;
  for (RecordNo no = log.first(); no < log.end(); ++no) log.at(no).serial = no - log.first() + 1;
  for (RecordNo no = log.committed_end(); no < log.end(); ++no) {
    const LogRecord& r = log.at(no);
    std::size_t at = 0;
    for (const Extent& e : r.extents) {
      if (e.kind == ExtentKind::zeros) {
        pending_.put_zeros(e.lba, e.blocks, r.serial);
        continue;
      }
      for (std::uint32_t i = 0; i < e.blocks; ++i)
        pending_.put_data(e.lba + i, r.payload_slots[at++], r.serial);
    }
  }
  if (log.committed_end() > log.first()) acked_serial_ = log.at(log.committed_end() - 1).serial;
}

void Primary::start(const Epoch& epoch, ReplicaSet in_sync, std::optional<EpochValue> value,
                    std::uint32_t flags) {
  value_ = std::move(value);
  promoted_at_ = v_.log.end();
  first_ever_ = v_.log.last_mark().lsn == Lsn{0};
  for (const Link& l : v_.links)
    if (!(in_sync & set_of(l.config.id))) v_.note_parting(l);
  update_tail_limit();
  begin_epoch(epoch, in_sync, flags);
  for (const Link& l : v_.links)
    if (l.up) peer_up(l.config.id);
}

void Primary::begin_epoch(const Epoch& epoch, ReplicaSet in_sync, std::uint32_t flags) {
  before_ |= in_sync_;  // members needed for what is already logged are needed until the new record is
                        // durable
  epoch_ = epoch;
  in_sync_ = in_sync;
  epoch_flags_ = flags;
  epoch_logged_ = false;
  log_epoch();
}

// Retried from advance() while the ring is full: the checkpointer makes room.
void Primary::log_epoch() {
  Body body;
  body.header = {RecordType::epoch,       v_.sb.volume,     epoch_, v_.log.last_mark().lsn + 1, 1,
                 v_.log.last_mark().hash, hash_payload({}), 0};
  body.epoch_change = {epoch_, v_.sb.replica, in_sync_, epoch_flags_};
  std::vector<std::byte> meta;
  encode_body_meta(body, meta);
  auto pos = v_.log.place(meta_blocks_for(meta.size()));
  if (!pos || v_.arena.free() < record_meta_blocks_max) {
    checkpointer_.request();
    return;
  }
  v_.sb.epochs.note(entry_of(body.epoch_change, body.header.first_lsn));
  // A batch that is open keeps its serial, by which the pending image knows it.
  std::uint64_t serial = open_.empty() ? open_serial_++ : open_serial_ - 1;
  epoch_end_ = v_.journal_record(body, meta, {}, *pos, serial) + 1;
  epoch_logged_ = true;
}

// ---- sealing
// -------------------------------------------------------------------------------------------------------

void Primary::maybe_seal() {
  if (open_.empty()) {
    want_seal_ = false;
    return;
  }
  bool due = want_seal_ || !open_.has_room(record_payload_blocks_max / 2, 1) ||
             v_.now - open_.opened_at >= v_.config.seal_after;
  if (due) try_seal();
}

bool Primary::try_seal() {
  if (open_.empty() || v_.failed || !epoch_logged_) return false;
  if (v_.journal_in_flight >= v_.config.journal_writes_in_flight) return false;
  if (v_.arena.free() < record_meta_blocks_max) return false;
  if (!v_.log.place(record_blocks_max)) {
    checkpointer_.request();  // the wall: writers wait until the tail has moved
    return false;
  }
  SealedBatch batch = open_.seal(pending_, open_serial_, v_.arena);
  Body body;
  std::vector<const std::byte*> blocks;
  blocks.reserve(batch.payload.size());
  for (Slot s : batch.payload) blocks.push_back(v_.arena.data(s));
  body.header = {RecordType::data,
                 v_.sb.volume,
                 epoch_,
                 v_.log.last_mark().lsn + 1,
                 static_cast<std::uint32_t>(batch.extents.size()),
                 v_.log.last_mark().hash,
                 hash_payload(blocks),
                 static_cast<std::uint32_t>(blocks.size())};
  body.extents = std::move(batch.extents);
  body.block_crc.reserve(blocks.size());
  std::size_t at = 0;
  for (const Extent& e : body.extents)
    if (e.kind == ExtentKind::data)
      for (std::uint32_t i = 0; i < e.blocks; ++i)
        body.block_crc.push_back(block_crc(v_.sb.volume, e.lba + i, {blocks[at++], block_size}));
  std::vector<std::byte> meta;
  encode_body_meta(body, meta);
  auto pos = v_.log.place(meta_blocks_for(meta.size()) + body.header.payload_blocks);
  TL_CHECK(pos.has_value());
  v_.journal_record(body, meta, std::move(batch.payload), *pos, open_serial_++);
  want_seal_ = false;
  return true;
}

// ---- acknowledgement and commit
// ------------------------------------------------------------------------------------

bool Primary::suspended() const {
  if (static_cast<unsigned>(std::popcount(in_sync_)) < v_.config.min_in_sync) return true;
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
    return required(p.config.id) && (p.connection != ConnectionState::Connected || p.filling());
  });
}

// One past the last record that is as safe as each link's protocol promises. A peer that is no member and
// away does not hold anybody up.
RecordNo Primary::acked_end() const {
  RecordNo end = v_.log.durable_end();
  for (const Peer& p : peers_) {
    if (required(p.config.id)) end = std::min(end, p.durable_end);
    if (p.connection != ConnectionState::Connected) continue;
    if (p.config.protocol == Protocol::B) end = std::min(end, p.received_end);
    if (p.config.protocol == Protocol::A) end = std::min(end, p.sent_end);
  }
  return end;
}

void Primary::advance_acks() {
  // What a member acknowledged that is away now may be gone there: it may follow a newer epoch since, and
  // have cut it off. Where members are too few, or one is being filled, what all of them have is committed
  // all the same: a resync waits for that.
  RecordNo committed = v_.log.durable_end();
  for (const Peer& p : peers_)
    if (required(p.config.id))
      committed = std::min(committed, p.connection == ConnectionState::Connected ? p.durable_end : 0);
  committed = std::max(committed, v_.log.committed_end());  // a member that was added may still be short of
                                                            // it
  v_.commit_upto(committed, [&](const LogRecord& r) {
    for (const Extent& e : r.extents) {
      if (e.kind == ExtentKind::zeros) {
        pending_.erase_zeros_if(e.lba, e.blocks, r.serial);
        continue;
      }
      for (std::uint32_t i = 0; i < e.blocks; ++i) pending_.erase_data_if(e.lba + i, r.serial);
    }
  });

  if (!suspended()) {
    RecordNo end = acked_end();
    if (end > v_.log.first())
      acked_serial_ = std::max(acked_serial_, v_.log.at(end - 1).serial);
    else if (end == v_.log.end())
      acked_serial_ = std::max(acked_serial_, open_serial_ - 1);  // all is home, nothing is left of it
  }
  while (!waiters_.empty() && waiters_.front().serial <= acked_serial_) {
    v_.out.completions.push_back({waiters_.front().id, 0});
    if (waiters_.front().since > suspended_until_)
      pace_.answered(Pace::Kind::flush, v_.now - waiters_.front().since);
    waiters_.pop_front();
  }
}

void Primary::advance() {
  if (v_.failed || lost_) {
    fail_everything();
    return;
  }
  if (!epoch_logged_) log_epoch();
  match_those_that_wait();
  close_slow();
  consider_change();
  bound_suspension();
  if (v_.failed) return fail_everything();
  retry_stalled();
  maybe_seal();
  if (demoting_ && !open_.empty()) try_seal();
  for (Peer& p : peers_) pump(p);
  advance_acks();
  pump_syncs();  // may have waited for what was committed just now
  tell_suspension();
  update_tail_limit();
}

// ---- peers
// ---------------------------------------------------------------------------------------------------------

Primary::Peer* Primary::find_peer(ReplicaId id) {
  for (Peer& p : peers_)
    if (p.config.id == id) return &p;
  return nullptr;
}

// Members, and replicas that are being filled, can always catch up from the journal. For others it is kept
// while there is room (close_slow).
void Primary::update_tail_limit() {
  bool room = v_.log.used_bytes() < v_.log.ring_bytes() / 2 && v_.log.place(record_blocks_max);
  RecordNo limit = UINT64_MAX;
  for (const Peer& p : peers_) {
    // What is durable there and committed here is as good as in its data area: the bitmaps need not tell of
    // it.
    if (Link* l = v_.find_link(p.config.id); l && !p.filling()) {
      l->covered_end = std::max(l->covered_end, std::min(p.durable_end, v_.log.committed_end()));
      v_.learn(*l);
    }
    if (p.sync_hold != 0) limit = std::min(limit, p.sync_hold);
    if (required(p.config.id) || p.connection == ConnectionState::Connected || room)
      limit = std::min(limit, p.durable_end);
  }
  v_.tail_limit = limit;
}

void Primary::refuse_other(ReplicaId id, std::string reason, bool split_brain) {
  Peer* peer = find_peer(id);
  if (!peer) return;
  if (split_brain) v_.note_split_brain(id, std::nullopt);
  refuse(*peer, std::move(reason), split_brain);
}

void Primary::refuse(Peer& peer, std::string reason, bool split_brain) {
  peer.connection = ConnectionState::StandAlone;
  peer.why = reason;
  v_.out.notices.push_back({true, fmt::format("peer {}: {}", peer.config.id, reason),
                            split_brain ? NoticeKind::split_brain : NoticeKind::refused, peer.config.id});
  v_.find_link(peer.config.id)->refused = true;
  v_.out.sends.push_back(Send{peer.config.id, Refuse{reason, split_brain}});
  v_.out.closes.push_back({peer.config.id, std::move(reason)});
}

void Primary::peer_up(ReplicaId id) {
  Peer* peer = find_peer(id);
  if (!peer) return;
  peer->connection = ConnectionState::Matching;
  peer->connection_no++;
  peer->reading = false;
  peer->sync.reset();
  peer->sync_hold = 0;
  peer->match.reset();
  peer->match_again = false;
  peer->commit_sent = {};
  peer->epoch = epoch_;
  if (v_.failed) return refuse(*peer, "the primary's disk has failed: " + v_.failure);  // it fills nobody
  v_.out.sends.push_back(Send{id, MatchRequest{epoch_}});
}

void Primary::peer_down(ReplicaId id) {
  Peer* peer = find_peer(id);
  if (!peer) return;
  if (peer->connection == ConnectionState::Connected)
    v_.out.notices.push_back({true, fmt::format("peer {} is lost", id), NoticeKind::disconnected, id});
  if (peer->connection != ConnectionState::StandAlone) peer->connection = ConnectionState::Connecting;
  peer->sync.reset();
  peer->sync_hold = 0;
  peer->match_again = false;
  if (!change_ || !(change_->desired.in_sync & set_of(id))) peer->adding = false;
}

void Primary::peer_input(ReplicaId id, PeerMessage message) {
  Peer* peer = find_peer(id);
  if (!peer || peer->connection == ConnectionState::Connecting ||
      peer->connection == ConnectionState::StandAlone)
    return;  // of a connection that is being closed
  std::visit(
      [&](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, MatchState> || std::is_same_v<M, ProbeReply> ||
                      std::is_same_v<M, Ack> || std::is_same_v<M, Refuse> || std::is_same_v<M, SyncReady> ||
                      std::is_same_v<M, SyncAck> || std::is_same_v<M, SyncDiffer>)
          handle(*peer, m);
        else
          refuse(*peer, "it sent a message that only a primary sends: is it configured as primary too?");
      },
      message);
}

void Primary::handle(Peer& peer, const MatchState& m) {
  if (peer.connection != ConnectionState::Matching)
    return refuse(peer, "it answered a question nobody asked");
  bool newer = m.last_epoch.counter > epoch_.counter;
  if (newer || (m.last_epoch.counter == epoch_.counter && m.last_epoch.id != epoch_.id)) {
    // It holds the record of an epoch that this node does not know: begun here and lost in a crash before it
    // was durable here, or begun there. Where nothing can have been acknowledged in it without this node, a
    // newer epoch takes over; the replica itself refuses what would cut off more than that. An arbiter knows
    // all epochs, and is asked.
    if (v_.config.arbiter == Arbiter::manual && !change_) {
      begin_epoch({m.last_epoch.counter + 1, Uuid::generate(v_.random)}, in_sync_,
                  epoch_after(epoch_) | (epoch_logged_ ? 0 : epoch_flags_ & (epoch_by_force | epoch_lossy)));
      peer.epoch = epoch_;
      v_.out.sends.push_back(Send{peer.config.id, MatchRequest{epoch_}});
      return;
    }
    if (v_.config.arbiter == Arbiter::external) ask_whether_granted(m.last_epoch.counter);
    return refuse(peer, fmt::format("it holds epoch {}, which nobody granted", m.last_epoch.counter));
  }
  if (!peer.match || &m != &*peer.match) peer.match = m;
  peer.match_again = false;
  peer.peer_commit = m.commit;
  peer.peer_last = m.last.lsn;
  if (auto end = v_.log.find(m.last)) return begin(peer, *end);
  // Candidates are our own records at or after the oldest point that the peer can name.
  peer.low = std::max(v_.log.first(), v_.log.end_upto({m.tail.lsn.v == 0 ? 0 : m.tail.lsn.v - 1}));
  while (peer.low < v_.log.end() && v_.log.mark_before(peer.low).lsn < m.tail.lsn) ++peer.low;
  if (v_.log.mark_before(peer.low).lsn < m.tail.lsn) return begin_resync(peer);
  peer.high = v_.log.end_upto(m.last.lsn);
  peer.low_known = false;
  probe_next(peer);
}

// Binary search: histories are equal up to some record and differ after it.
void Primary::probe_next(Peer& peer) {
  if (peer.low < v_.log.first()) {  // the tail has moved on meanwhile
    peer.low = v_.log.first();
    peer.low_known = false;
  }
  if (peer.low > peer.high) return begin_resync(peer);
  if (peer.low == peer.high && peer.low_known) return begin(peer, peer.low);
  peer.probing = peer.low + (peer.high - peer.low + (peer.low_known ? 1 : 0)) / 2;
  peer.probe_mark = v_.log.mark_before(peer.probing);
  v_.out.sends.push_back(Send{peer.config.id, Probe{peer.probe_mark}});
}

void Primary::handle(Peer& peer, const ProbeReply& m) {
  if (peer.connection != ConnectionState::Matching || m.mark != peer.probe_mark)
    return refuse(peer, "it answered a question nobody asked");
  if (m.found) {
    peer.low = peer.probing;
    peer.low_known = true;
  } else {
    peer.high = peer.probing - 1;
  }
  probe_next(peer);
}

// The table, with an epoch that waits for room in the journal: a peer that connects has to judge by that
// epoch too.
EpochTable Primary::epochs() const {
  EpochTable all = v_.sb.epochs;
  if (!epoch_logged_) all.note({epoch_, v_.log.last_mark().lsn + 1, v_.sb.replica, in_sync_, epoch_flags_});
  return all;
}

// What a member has acknowledged. One that was created anew may have acknowledged whatever was in the log
// here at the promotion: how much of that is committed is not known after a restart.
Lsn Primary::held_by(const Peer& peer) const {
  if (!required(peer.config.id)) return {};
  RecordNo end = v_.log.committed_end();
  if (peer.peer_last.v == 0) end = std::max(end, promoted_at_);
  return v_.log.mark_before(end).lsn;
}

bool Primary::lossy_behind(RecordNo end) const {
  if (!epoch_logged_ && (epoch_flags_ & epoch_lossy)) return true;
  for (RecordNo no = std::max(end, v_.log.first()); no < v_.log.end(); ++no) {
    const LogRecord& r = v_.log.at(no);
    if (r.type == RecordType::epoch && (r.epoch_change.flags & epoch_lossy)) return true;
  }
  return false;
}

// A peer cuts its log for the newest epoch in our table, and remembers that epoch. If the epoch's record were
// not durable here, a crash could leave an epoch that only the peer knows. The next promotion here could take
// the same counter.
bool Primary::waits_for_epoch(Peer& peer) {
  if (!epoch_in_flight()) return false;
  peer.match_again = true;
  return true;
}

void Primary::match_those_that_wait() {
  if (epoch_in_flight()) return;
  for (Peer& p : peers_)
    if (p.match_again && p.match && p.connection == ConnectionState::Matching) handle(p, *p.match);
}

void Primary::begin(Peer& peer, RecordNo common_end) {
  if (waits_for_epoch(peer)) return;
  if (common_end < v_.readable_from) return begin_resync(peer);
  LogMark from = v_.log.mark_before(common_end);
  const auto& state = v_.find_link(peer.config.id)->state;
  Verdict verdict = judge_peer(from.lsn, peer.peer_commit, state ? &*state : nullptr);
  if (std::holds_alternative<verdict::Resync>(verdict)) return begin_resync(peer);
  if (auto* split = std::get_if<verdict::SplitBrain>(&verdict)) {
    v_.note_split_brain(peer.config.id, from.lsn);
    return refuse(peer, std::move(split->why), true);
  }
  // A promotion in spite of a loss leaves blocks of lost records in the data area here: no record tells of
  // those.
  if (lossy_behind(common_end)) return begin_resync(peer, common_end);
  peer.connection = ConnectionState::Connected;
  peer.why.clear();
  peer.sent_end = peer.begun_at = common_end;
  peer.refill = required(peer.config.id) && common_end < v_.log.committed_end() ? v_.log.end() : 0;
  // Until its first ack nothing is known to be durable there beyond what it acknowledged before.
  peer.durable_end = std::min(peer.durable_end, common_end);
  peer.received_end = peer.durable_end;
  v_.out.sends.push_back(Send{peer.config.id, Begin{peer.epoch, from, held_by(peer), epochs()}});
  v_.out.notices.push_back({false, fmt::format("peer {} is connected at {}", peer.config.id, from.lsn.v),
                            NoticeKind::connected, peer.config.id});
  const Link* link = v_.find_link(peer.config.id);
  peer.incomplete = peer.incomplete && !link->state;
  // An earlier resync was not finished, and what of it has arrived is not known here.
  if (link->state && link->state->inconsistent) {
    bool vouched = vouches(*link->state);
    start_sync(peer, from.lsn, !vouched || !bitmap_reaches(peer, link->state->base), true);
    peer.sync->nothing = vouched && link->state->base >= from.lsn;
  }
}

void Primary::handle(Peer& peer, const Ack& m) {
  if (peer.connection != ConnectionState::Connected || m.epoch != peer.epoch)
    return refuse(peer, "it acknowledged records of another epoch");
  auto durable = v_.log.find(m.durable);
  RecordNo received = v_.log.end_upto(m.received);
  if (!durable || *durable > peer.sent_end || received > peer.sent_end || received < *durable)
    return refuse(peer, fmt::format("it acknowledged {}, which it was not sent", m.durable.lsn.v));
  peer.durable_end = std::max(peer.durable_end, *durable);
  peer.received_end = std::max(peer.received_end, received);
  v_.end_split_brain(peer.config.id);  // it has looked at its own history, and follows this one
}

void Primary::handle(Peer& peer, const Refuse& m) {
  peer.connection = ConnectionState::StandAlone;
  peer.why = "it refused: " + m.reason;
  if (m.split_brain) v_.note_split_brain(peer.config.id, std::nullopt);
  v_.out.notices.push_back({true, fmt::format("peer {} refused: {}", peer.config.id, m.reason),
                            m.split_brain ? NoticeKind::split_brain : NoticeKind::refused, peer.config.id});
  v_.out.closes.push_back({peer.config.id, m.reason});
}

// Sends what the peer lacks, in order, within its window; what memory no longer has comes from the journal.
// Of a volume that has begun just now nobody gets anything before that is durable here: this replica, were it
// empty after a power cut, could not be told from one whose disk was replaced, and who holds more than it
// would speak against it.
void Primary::pump(Peer& peer) {
  if (peer.connection != ConnectionState::Connected) return;
  if (first_ever_ && v_.log.durable_end() <= promoted_at_) return;
  if (peer.sent_end < v_.log.first()) return refuse(peer, "it has lost records that it had acknowledged");
  while (!peer.reading && peer.sent_end < v_.log.end()) {
    const LogRecord& r = v_.log.at(peer.sent_end);
    RecordNo acked = std::max(peer.durable_end, v_.log.first());
    std::uint64_t outstanding = v_.log.pos_before(peer.sent_end).v -
                                v_.log.pos_before(std::min(acked, peer.sent_end)).v;
    if (outstanding > v_.config.send_window_bytes) return;
    if (r.in_memory()) {
      v_.out.sends.push_back(v_.record_message(peer.config.id, peer.epoch, r));
      peer.sent_end++;
      continue;
    }
    peer.reading = true;
    std::uint64_t n = std::uint64_t{peer.config.id} << 48 | (peer.connection_no & 0xffffffffffff);
    v_.out.journal_reads.push_back(
        {make_token(TokenKind::journal_read, n), v_.journal_offset(r.pos), r.total_blocks * block_size});
  }
}

void Primary::on_journal_read(std::uint64_t n, int error, std::vector<std::byte> bytes) {
  Peer* peer = find_peer(static_cast<ReplicaId>(n >> 48));
  if (!peer || (peer->connection_no & 0xffffffffffff) != (n & 0xffffffffffff) || !peer->reading) return;
  peer->reading = false;
  if (peer->connection != ConnectionState::Connected) return;
  // The tail was moving when it connected, and this device has failed since: nothing looks after its peers
  // any more.
  if (peer->sent_end < v_.log.first()) return;
  const LogRecord& r = v_.log.at(peer->sent_end);
  if (error != 0)
    return journal_is_damaged(*peer,
                              fmt::format("cannot be read at record {} ({})", r.first.v, errno_text(error)));
  ByteSpan all(bytes);
  ByteSpan meta = all.subspan(frame_header_bytes, r.meta_bytes);
  auto body = decode_body_meta(meta, v_.sb.volume, v_.sb.volume_blocks);
  if (!body || body->mark() != r.mark)
    return journal_is_damaged(*peer, fmt::format("is damaged at record {}", r.first.v));
  ByteSpan payload = all.subspan(std::size_t{meta_blocks_for(r.meta_bytes)} * block_size);
  std::vector<const std::byte*> blocks;
  for (std::size_t at = 0; at < payload.size(); at += block_size) blocks.push_back(payload.data() + at);
  if (!verify_payload(*body, blocks))
    return journal_is_damaged(*peer, fmt::format("is damaged in the payload of record {}", r.first.v));
  v_.out.sends.push_back(
      Send{peer->config.id,
           RecordMessage{peer->epoch, {meta.begin(), meta.end()}, {payload.begin(), payload.end()}}});
  peer->sent_end++;
}

// What the record brought is in the data area, or in memory and will be: the peer gets it as content instead.
void Primary::journal_is_damaged(Peer& peer, const std::string& how) {
  v_.readable_from = peer.sent_end + 1;
  checkpointer_.request_all();
  peer.connection = ConnectionState::StandAlone;
  peer.why = "the journal here " + how;
  v_.out.notices.push_back(
      {true, fmt::format("the journal here {}: replica {} gets its content by a resync", how, peer.config.id),
       NoticeKind::other, peer.config.id});
  v_.out.sends.push_back(Send{peer.config.id, Refuse{"my journal is damaged: connect again for a resync"}});
  v_.out.closes.push_back({peer.config.id, "for a resync, since the journal here is damaged"});
}

// Peers learn the commit point once a batch of output, not once a record.
void Primary::flush_messages() {
  LogMark commit = v_.log.mark_before(v_.log.committed_end());
  for (Peer& p : peers_) {
    if (p.connection != ConnectionState::Connected || p.commit_sent == commit) continue;
    p.commit_sent = commit;
    v_.out.sends.push_back(Send{p.config.id, Commit{p.epoch, commit}});
  }
}

std::optional<Instant> Primary::next_tick() const {
  std::optional<Instant> next;
  auto consider = [&](Instant at) {
    if (!next || at < *next) next = at;
  };
  if (v_.failed || lost_) return next;
  if (!open_.empty() && v_.journal_in_flight < v_.config.journal_writes_in_flight)
    consider(open_.opened_at + v_.config.seal_after);
  if (change_ && change_->ask_again) consider(*change_->ask_again);
  if (suspended_since_ && !suspension_told_) consider(*suspended_since_ + suspension_news_after);
  if (waiting_since_ && v_.config.suspend_timeout > Duration(0))
    consider(*waiting_since_ + v_.config.suspend_timeout);
  for (const Peer& p : peers_)
    if (p.sync && p.sync->pause_until > v_.now) consider(p.sync->pause_until);
  if (auto at = pace_.next()) consider(*at);
  for (const Peer& p : peers_)
    if (p.due_end != 0 && may_be_closed(p)) consider(p.due_since + v_.config.slow_peer);
  return next;
}

void Primary::fill_status(VolumeStatus& s) const {
  s.epoch = epoch_;
  s.in_sync = in_sync_;
  s.suspended = suspended();
  s.resync_held_to = pace_.held_to().value_or(0);
  if (s.suspended) s.waits_for = waits_for();
  s.waiting_requests = waiters_.size() + stalled_writes_.size() + stalled_reads_.size() + repairing_.size();
  bool no_room = !stalled_writes_.empty() ||
                 (want_seal_ && !open_.empty() && !v_.log.place(record_blocks_max));
  for (const Peer& p : peers_) {
    bool holds = p.connection == ConnectionState::Connected && backlog(p) > v_.config.send_window_bytes / 2;
    if (!s.suspended && no_room && holds && (s.slowed_by == 0 || backlog(p) > s.slowed_by_bytes))
      s.slowed_by = p.config.id, s.slowed_by_bytes = backlog(p);
    auto lsn = [&](RecordNo end) {
      return end < v_.log.first() ? Lsn{} : v_.log.mark_before(std::min(end, v_.log.end())).lsn;
    };
    PeerStatus& to = s.peers.emplace_back();
    to = {p.config.id,         p.config.protocol,  p.connection, lsn(p.sent_end),
          lsn(p.received_end), lsn(p.durable_end), p.why};
    to.in_sync = (in_sync_ & set_of(p.config.id)) != 0;
    to.sync_target = p.sync.has_value();
    if (p.sync) to.synced_blocks = p.sync->done, to.sync_total_blocks = p.sync->total;
  }
}

bool Primary::settled() const {
  return open_.empty() && stalled_writes_.empty() && waiters_.empty();
}

}  // namespace twinloft::repl::core
