#include "peer_links.h"

#include <algorithm>
#include <utility>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

// ---- connections

void PeerLinks::refuse_other(ReplicaId id, std::string reason, bool split_brain) {
  Peer* peer = peers_.find(id);
  if (!peer) return;
  if (split_brain) v_.note_split_brain(id, std::nullopt);
  refuse(v_, *peer, std::move(reason), split_brain);
}

void PeerLinks::peer_up(ReplicaId id) {
  Peer* peer = peers_.find(id);
  if (!peer || term_.lost()) return;
  peer->connect(term_.epoch());
  if (v_.failed)  // a failed primary sends nothing
    return refuse(v_, *peer, fmt::format("replica {} has failed: {}", v_.sb.replica, v_.failure));
  v_.out.sends.push_back(Send{id, MatchRequest{term_.epoch()}});
}

void PeerLinks::peer_down(ReplicaId id) {
  Peer* peer = peers_.find(id);
  if (!peer) return;
  if (peer->is_streaming())
    v_.out.notices.push_back(
        {true, fmt::format("connection to peer {} lost", id), NoticeKind::disconnected, id});
  peer->disconnect();
  if (!membership_.changing(id)) peer->adding = false;
}

void PeerLinks::peer_input(ReplicaId id, PeerMessage message) {
  Peer* peer = peers_.find(id);
  if (!peer || peer->away()) return;  // the connection is being closed
  if (term_.lost()) return;
  std::visit(
      [&](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, MatchState> || std::is_same_v<M, ProbeReply> ||
                      std::is_same_v<M, Ack> || std::is_same_v<M, Refuse> || std::is_same_v<M, SyncReady> ||
                      std::is_same_v<M, SyncAck> || std::is_same_v<M, SyncDiffer> ||
                      std::is_same_v<M, TakeAfter> || std::is_same_v<M, RelayLost>)
          handle(*peer, m);
        else if constexpr (std::is_same_v<M, Subscribe> || std::is_same_v<M, Subscribed> ||
                           std::is_same_v<M, Taken> || std::is_same_v<M, SubscriptionEnded>)
          return;  // meant for the secondary that this replica was
        else if constexpr (std::is_same_v<M, RecordMessage>)
          return;  // of a relay. Another primary begins with a match request
        else
          refuse(v_, *peer, "unexpected message of a primary: both replicas may be primary");
      },
      message);
}

void PeerLinks::handle(Peer& peer, const Ack& m) {
  Peer::Streaming* stream = peer.streaming();
  if (!stream || m.epoch != peer.epoch)
    return refuse(v_, peer, "acknowledgement of records of another epoch");
  auto durable = acknowledged(peer, *stream, m.durable);
  RecordNo has = received(*stream, m.received);
  // A record before the stream's begin, which both logs have, and which this log does not keep any more.
  bool earlier = !durable && m.durable.lsn < stream->begun_after.lsn;
  if (earlier) durable = peer.durable_end;
  if (!durable || *durable > stream->sent_end || has > stream->sent_end || has < *durable)
    return refuse(v_, peer, fmt::format("acknowledgement of LSN {}, which was not sent", m.durable.lsn.v));
  if (!earlier && *durable >= peer.durable_end) peer.durable_end = *durable, peer.durable_mark = m.durable;
  stream->acked = true;
  stream->received_end = std::max(stream->received_end, has);
  stream->note_durable(*durable);
  v_.end_split_brain(peer.id());  // the peer has compared the histories, and follows this one
}

void PeerLinks::handle(Peer& peer, const Refuse& m) {
  peer.stand_alone(fmt::format("replica {} refused: {}", peer.id(), m.reason));
  if (m.split_brain) v_.note_split_brain(peer.id(), std::nullopt);
  v_.out.notices.push_back({true, fmt::format("peer {} refused: {}", peer.id(), m.reason),
                            m.split_brain ? NoticeKind::split_brain : NoticeKind::refused, peer.id()});
  v_.out.closes.push_back({peer.id(), m.reason});
}

// ---- records

// A relay first: it bounds the marks of those behind it.
void PeerLinks::pump() {
  auto relay_of = [&](const Peer* p) {
    const Peer::Streaming* s = p ? p->streaming() : nullptr;
    return s && s->source.relay != 0 ? peers_.find(s->source.relay) : nullptr;
  };
  auto of_depth = [&](unsigned depth) {
    for (Peer& p : peers_) {
      const Peer* first = relay_of(&p);
      unsigned relays = first == nullptr ? 0 : relay_of(first) == nullptr ? 1 : 2;
      if (relays == depth) pump(p);
    }
  };
  for (unsigned depth : {0u, 1u, 2u}) of_depth(depth);
}

// Sends missing records in order, within the window, from memory or from the journal. The first record of a
// new volume must be durable here before it is sent. After a power cut, this replica could otherwise be empty
// while a peer has records. It would then look like a new disk, and could not be promoted.
void PeerLinks::pump(Peer& peer) {
  if (!peer.is_streaming() || membership_.first_record_not_durable()) return;
  Peer::Streaming& stream = *peer.streaming();
  if (!stream.source.answered) return;
  while (!stream.reading && !stream.reading_chunk && stream.sent_end < v_.log.first())
    if (!pump_spilled(peer, stream)) return;
  if (stream.source.relay != 0) return pump_marks(peer, stream);
  while (!stream.reading && !stream.reading_chunk && stream.sent_end < v_.log.end()) {
    const LogRecord& r = v_.log.at(stream.sent_end);
    if (!room_.for_records(peer, std::uint64_t{r.total_blocks} * block_size)) return;
    if (r.in_memory()) {
      v_.out.sends.push_back(v_.record_message(peer.id(), peer.epoch, r));
      stream.note_sent(r.mark, std::uint64_t{r.total_blocks} * block_size);
      continue;
    }
    stream.reading = true;
    stream.reading_bytes = std::uint64_t{r.total_blocks} * block_size;
    std::uint64_t n = std::uint64_t{peer.id()} << 48 | (peer.connection_no & 0xffffffffffff);
    v_.out.journal_reads.push_back(
        {make_token(TokenKind::journal_read, n), v_.journal_offset(r.pos), r.total_blocks * block_size});
  }
}

// The bodies come from the peer's relay.
void PeerLinks::pump_marks(Peer& peer, Peer::Streaming& stream) {
  RecordNo end = relays_.marks_end(peer);
  while (!stream.reads() && stream.sent_end < end && stream.sent.size() < marks_window)
    send_mark(peer, stream, v_.log.at(stream.sent_end).mark);
}

// Marks of one batch of output share a message.
void PeerLinks::send_mark(Peer& peer, Peer::Streaming& stream, const LogMark& mark) {
  auto* last = v_.out.sends.empty() ? nullptr : std::get_if<Send>(&v_.out.sends.back());
  auto* marks = last && last->peer == peer.id() ? std::get_if<RecordMarks>(&last->message) : nullptr;
  if (marks && marks->seq == stream.source.seq && marks->marks.size() < record_marks_max)
    marks->marks.push_back(mark);
  else
    v_.out.sends.push_back(Send{peer.id(), RecordMarks{peer.epoch, stream.source.seq, {mark}}});
  stream.note_sent(mark, 0);
}

// The peer has every record up to the mark, and none behind it.
void PeerLinks::handle(Peer& peer, const TakeAfter& m) {
  if (!relays_.answers(peer, m)) return;
  Peer::Streaming& stream = *peer.streaming();
  auto end = acknowledged(peer, stream, m.mark);
  if (!end || *end < stream.received_end || *end > stream.sent_end)
    return refuse(v_, peer, fmt::format("answer with LSN {}, which was not sent", m.mark.lsn.v));
  stream.source.answered = true;
  stream.go_back(*end, m.mark);
}

void PeerLinks::on_journal_read(std::uint64_t n, int error, std::vector<std::byte> bytes) {
  Peer* peer = peers_.find(static_cast<ReplicaId>(n >> 48));
  if (!peer || (peer->connection_no & 0xffffffffffff) != (n & 0xffffffffffff) || !peer->is_streaming())
    return;
  Peer::Streaming& stream = *peer->streaming();
  if (!std::exchange(stream.reading, false)) return;
  // The tail may have passed the record. After a failure of the device, pump() no longer checks for that.
  if (stream.sent_end < v_.log.first()) return;
  const LogRecord& r = v_.log.at(stream.sent_end);
  if (error != 0)
    return journal_is_damaged(*peer,
                              fmt::format("cannot be read at record {} ({})", r.first.v, errno_text(error)));
  auto stored = decode_stored_record(bytes, v_.sb.volume, v_.sb.volume_blocks);
  if (!stored || stored->body.mark() != r.mark)
    return journal_is_damaged(*peer, fmt::format("is damaged at record {}", r.first.v));
  v_.out.sends.push_back(Send{peer->id(), stored_message(*peer, *stored)});
  stream.note_sent(r.mark, std::uint64_t{r.total_blocks} * block_size);
}

// The content of the damaged record is in the data area or in memory. The peer gets it by a resync.
void PeerLinks::journal_is_damaged(Peer& peer, const std::string& how) {
  v_.readable_from = peer.sent_end() + 1;
  checkpointer_.request_all();
  peer.stand_alone("the journal here " + how);
  v_.out.notices.push_back({true,
                            fmt::format("the journal here {}: replica {} gets a resync", how, peer.id()),
                            NoticeKind::other, peer.id()});
  v_.out.sends.push_back(
      Send{peer.id(), Refuse{fmt::format("the journal of replica {} is damaged: connect again for a resync",
                                         v_.sb.replica)}});
  v_.out.closes.push_back({peer.id(), "the journal here is damaged: reconnecting for a resync"});
}

// The commit point travels with the next record. A peer needs it only to write records home and to free their
// memory, so a message of its own would wake the peer for each flush, and delay the next record.
void PeerLinks::flush_messages(bool now) {
  report_lags();
  LogMark commit = v_.log.mark_before(v_.log.committed_end());
  for (Peer& p : peers_) {
    Peer::Streaming* stream = p.streaming();
    if (!stream || stream->commit_sent == commit) continue;
    if (!stream->commit_waits.goes(now, has_message_to(v_.out, p.id()), v_.now)) continue;
    stream->commit_sent = commit;
    v_.out.sends.push_back(Send{p.id(), Commit{p.epoch, commit}});
  }
}

void PeerLinks::update_tail_limit() {
  bool room = v_.log.used_bytes() < v_.log.ring_bytes() / 2 && v_.log.place(record_blocks_max);
  RecordNo limit = UINT64_MAX;
  for (const Peer& p : peers_) {
    // The bitmap needs no marks for records that are durable on the peer and committed here.
    if (Link* l = v_.find_link(p.id()); l && !p.filling()) {
      l->covered_end = std::max(l->covered_end, std::min(p.durable_end, v_.log.committed_end()));
      v_.learn(*l);
    }
    if (p.hold() != 0) limit = std::min(limit, p.hold());
    bool kept = v_.far.keeps_for(p.id());  // Volume::tail_bound() has what it needs
    if (term_.required(p) || (p.is_streaming() && !kept) || (room && !p.config.buffer))
      limit = std::min(limit, p.durable_end);
  }
  v_.tail_limit = limit;
}

// ---- peers that are slow

std::uint64_t PeerLinks::backlog(const Peer& p) const {
  TL_CHECK(p.is_streaming());
  RecordNo has = std::max(p.durable_end, p.streaming()->begun_at);
  return v_.log.pos_before(v_.log.end()).v -
         v_.log.pos_before(std::clamp(has, v_.log.first(), v_.log.end())).v;
}

// Everything in flight to the peer must be durable there within slow_peer. Progress alone is not enough: with
// a peer that is slower than the load, later records would wait longer and longer.
void PeerLinks::watch(Peer& p) {
  if (!p.is_streaming()) return;
  Peer::Streaming& s = *p.streaming();
  if (p.filling() || p.config.buffer) return watch_filling(p, s);
  if (p.durable_end >= v_.log.end()) {
    s.due_end = 0;
    return;
  }
  if (s.due_end != 0 && p.durable_end < s.due_end) return;
  s.due_end = std::max(s.sent_end, p.durable_end + 1);
  s.due_since = v_.now;
}

// For a peer that is being filled, or is behind a buffered link, any progress is enough. It may slow the
// clients down (update_tail_limit, bound_buffers), but must not block them.
void PeerLinks::watch_filling(Peer& p, Peer::Streaming& s) {
  bool waits = p.durable_end < s.sent_end || !s.source.answered;
  std::uint64_t filled = p.durable_end;
  if (s.resync) {
    const Peer::Resync& r = *s.resync;
    waits = waits || !r.flying.empty() || !r.checking.empty() || r.declined;
    filled += r.acks + r.checks - r.checking.size();  // declined data is no progress
  }
  if (waits && s.due_end != 0 && s.filled == filled) return;
  s.filled = filled;
  s.due_end = waits ? 1 : 0;
  s.due_since = v_.now;
}

// A slow peer delays acknowledgements as a member, or under protocol B or A. It also keeps the journal's tail
// back. Its connection is closed, and the rules for an absent peer then apply.
void PeerLinks::close_slow() {
  bound_buffers();
  for (Peer& p : peers_) {
    watch(p);
    if (!membership_.may_be_closed(p)) continue;
    if (p.streaming()->due_end != 0 && v_.now - p.streaming()->due_since >= v_.config.slow_peer) {
      refuse(v_, p,
             fmt::format("data sent to replica {} was not durable there within {} s", p.id(),
                         std::chrono::duration_cast<std::chrono::seconds>(v_.config.slow_peer).count()));
    } else if (!term_.required(p) && !p.filling() && !v_.far.keeps_for(p.id()) &&
               backlog(p) > v_.log.ring_bytes() / 2) {
      refuse(
          v_, p,
          fmt::format("replica {} is {} MiB behind, more than half of the journal: a resync brings the rest",
                      p.id(), backlog(p) >> 20));
    }
  }
}

std::optional<Instant> PeerLinks::next_tick() const {
  std::optional<Instant> next = next_far_tick();
  if (auto at = relays_.next_tick()) next = std::min(next.value_or(*at), *at);
  for (const Peer& p : peers_) {
    const Peer::Streaming* s = p.streaming();
    if (s && s->commit_waits.next_tick())
      next = std::min(next.value_or(*s->commit_waits.next_tick()), *s->commit_waits.next_tick());
    if (!s || s->due_end == 0 || !membership_.may_be_closed(p)) continue;
    Instant at = s->due_since + v_.config.slow_peer;
    next = std::min(next.value_or(at), at);
  }
  return next;
}

// ---- queries

// A replica that is being filled, or has lost acknowledged writes, does not hold everything.
std::vector<Stream> PeerLinks::streams() const {
  std::vector<Stream> streams;
  for (const Peer& p : peers_) {
    const Link* link = v_.find_link(p.id());
    if (!p.is_streaming() || !link->up) continue;
    bool holds = !p.filling() && link->state && !link->state->inconsistent;
    streams.push_back({p.id(), link->connection, p.epoch, (term_.in_sync() & set_of(p.id())) != 0, holds});
  }
  return streams;
}

void PeerLinks::fill_status(VolumeStatus& s, bool no_room) const {
  for (const Peer& p : peers_) {
    const FarBuffer* far = v_.far.find(p.id());
    bool holds = p.is_streaming() && backlog(p) > v_.config.send_window_bytes / 2;
    if (!s.suspended && no_room && holds && (s.slowed_by == 0 || backlog(p) > s.slowed_by_bytes))
      s.slowed_by = p.id(), s.slowed_by_bytes = backlog(p);
    auto lsn = [&](RecordNo end) {
      if (end >= v_.log.first()) return v_.log.mark_before(std::min(end, v_.log.end())).lsn;
      if (!p.is_streaming() || end == p.durable_end) return end == 0 ? Lsn{} : p.durable_mark.lsn;
      const auto& sent = p.streaming()->sent;
      auto of = std::find_if(sent.begin(), sent.end(), [&](const auto& each) { return each.end == end; });
      return of == sent.end() ? p.streaming()->begun_after.lsn : of->mark.lsn;
    };
    PeerStatus& to = s.peers.emplace_back();
    to = {p.id(),
          p.config.protocol,
          p.connection(),
          lsn(p.sent_end()),
          lsn(p.received_end()),
          lsn(p.durable_end),
          p.why};
    to.in_sync = (term_.in_sync() & set_of(p.id())) != 0;
    to.on_its_way = room_.on_its_way(p);
    if (p.is_streaming()) to.relay = p.streaming()->source.relay;
    if (far) to.buffer.emplace().waits = p.in<Peer::Matching>() && waits_for_line(p);
    const Peer::Resync* resync = p.resync();
    to.sync_target = resync != nullptr;
    if (resync) to.synced_blocks = resync->done, to.sync_total_blocks = resync->total;
  }
}

}  // namespace twinloft::repl::core
