// Streams that begin with records of the spill: the search for the peer's last record there, and the records
// up to those of the journal.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "peer_links.h"
#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

// True: the answer comes with the chunk. Only streams of buffered links know what they have sent beyond the
// log.
bool PeerLinks::search_spill(Peer& peer, const LogMark& last) {
  const SpillIndex::Held* held = peer.config.buffer ? v_.far.spill().behind(last.lsn) : nullptr;
  if (!held) return false;
  peer.in<Peer::Matching>()->reading = held->chunk.number;
  read_chunk(peer, *held);
  return true;
}

void PeerLinks::read_chunk(Peer& peer, const SpillIndex::Held& held) {
  std::uint64_t n = std::uint64_t{peer.id()} << 48 | (peer.connection_no & 0xffffffffffff);
  v_.out.spill_reads.push_back({make_token(TokenKind::spill_read, n), held.chunk.number});
}

void PeerLinks::on_spill_read(std::uint64_t n, int error, std::vector<std::byte> chunk) {
  Peer* peer = peers_.find(static_cast<ReplicaId>(n >> 48));
  if (!peer || (peer->connection_no & 0xffffffffffff) != (n & 0xffffffffffff)) return;
  auto* matching = peer->in<Peer::Matching>();
  Peer::Streaming* stream = peer->streaming();
  std::optional<std::uint64_t> number = matching ? std::exchange(matching->reading, std::nullopt)
                                        : stream ? std::exchange(stream->reading_chunk, std::nullopt)
                                                 : std::nullopt;
  if (!number || term_.lost()) return;
  const SpillIndex::Held* held = nullptr;
  if (matching)
    held = v_.far.spill().behind(matching->answer->last.lsn);
  else if (v_.far.spill().holds(stream->sent_end))
    held = &v_.far.spill().of(stream->sent_end);
  if (!held || held->chunk.number != *number) {  // dropped meanwhile, or the peer has answered again
    if (matching) match(*peer, MatchState(*matching->answer));
    return;  // pump() decides about a stream
  }
  RecordNo end = held->end();
  if (error != 0) return lose_spill(end, fmt::format("cannot be read ({})", errno_text(error)));
  auto header = decode_spill_chunk(chunk, v_.sb.volume, v_.sb.replica);
  if (!header || *header != held->chunk)
    return lose_spill(end, fmt::format("is damaged in chunk {}", *number));
  if (matching) return find_in_chunk(*peer, ByteSpan(chunk).subspan(spill_header_bytes), *held);
  if (!open_chunk(*stream, std::move(chunk))) lose_spill(end, "is damaged");
}

// The peer's last record may be of another history. Then only a resync helps.
void PeerLinks::find_in_chunk(Peer& peer, ByteSpan records, const SpillIndex::Held& held) {
  LogMark wanted = peer.in<Peer::Matching>()->answer->last;
  LogMark mark = held.chunk.before;
  RecordNo no = held.first;
  while (mark.lsn < wanted.lsn && !records.empty()) {
    auto r = decode_stored_record(records, v_.sb.volume, v_.sb.volume_blocks);
    if (!r) return lose_spill(held.end(), "is damaged: " + r.error().message);
    mark = r->body.mark();
    records = records.subspan(r->bytes);
    ++no;
  }
  if (mark != wanted || !v_.far.spill().holds(no)) return begin_resync(peer);
  begin(peer, no, mark);
}

// Finds the record sent_end in the chunk. False: the chunk is damaged.
bool PeerLinks::open_chunk(Peer::Streaming& stream, std::vector<std::byte> chunk) const {
  std::size_t at = spill_header_bytes;
  for (RecordNo no = v_.far.spill().of(stream.sent_end).first; no < stream.sent_end; ++no) {
    auto frame = at + block_size <= chunk.size() ? decode_frame(ByteSpan(chunk).subspan(at), v_.sb.volume)
                                                 : fail(Errc::corrupt, "the chunk ends");
    if (!frame) return false;
    at += std::size_t{frame->total_blocks} * block_size;
  }
  stream.chunk = Peer::Streaming::Chunk{std::move(chunk), at};
  return true;
}

// False: no more records can be sent now.
bool PeerLinks::pump_spilled(Peer& peer, Peer::Streaming& stream) {
  if (!peer.config.buffer) {
    refuse(v_, peer, fmt::format("replica {} has lost records that it had acknowledged", peer.id()));
    return false;
  }
  if (!v_.far.spill().holds(stream.sent_end)) {
    refuse(v_, peer, fmt::format("replica {} lacks records that are not kept any more", peer.id()));
    return false;
  }
  bool by_relay = stream.source.relay != 0;
  if (by_relay && (stream.sent.size() >= marks_window || stream.sent_end >= relays_.marks_end(peer)))
    return false;
  if (stream.chunk && stream.chunk->at >= stream.chunk->bytes.size()) stream.chunk.reset();
  const SpillIndex::Held& held = v_.far.spill().of(stream.sent_end);
  std::uint64_t next = stream.chunk ? std::min<std::uint64_t>(stream.chunk->bytes.size() - stream.chunk->at,
                                                              record_blocks_max * block_size)
                                    : spill_header_bytes + held.chunk.bytes;
  if (!room_.for_records(peer, next)) return false;
  if (!stream.chunk) {
    stream.reading_chunk = held.chunk.number;
    stream.reading_bytes = next;
    read_chunk(peer, held);
    return false;
  }
  RecordNo end = held.end();
  std::string why = send_spilled(peer, stream);
  if (!why.empty()) lose_spill(end, why);
  return why.empty();
}

RecordMessage PeerLinks::stored_message(const Peer& peer, const StoredBytes& r) {
  return {peer.epoch, {r.meta.begin(), r.meta.end()}, {r.payload.begin(), r.payload.end()}};
}

// The reason why it cannot be sent, or an empty text.
std::string PeerLinks::send_spilled(Peer& peer, Peer::Streaming& stream) {
  ByteSpan rest = ByteSpan(stream.chunk->bytes).subspan(stream.chunk->at);
  auto r = decode_stored_record(rest, v_.sb.volume, v_.sb.volume_blocks);
  if (!r) return "is damaged: " + r.error().message;
  LogMark last = stream.sent_mark;
  if (r->body.header.prev_hash != last.hash || r->body.header.first_lsn != last.lsn + 1)
    return fmt::format("is damaged: record {} does not follow {}", r->body.header.first_lsn.v, last.lsn.v);
  stream.chunk->at += r->bytes;
  if (stream.source.relay != 0) {
    send_mark(peer, stream, r->body.mark());
  } else {
    v_.out.sends.push_back(Send{peer.id(), stored_message(peer, *r)});
    stream.note_sent(r->body.mark(), r->bytes);
  }
  if (stream.sent_end >= v_.log.first()) stream.chunk.reset();
  return "";
}

void PeerLinks::lose_spill(RecordNo end, const std::string& why) {
  v_.far.lose_spill(end, v_.now);
  v_.out.notices.push_back({true,
                            fmt::format("the spill {}: a resync brings far replicas what they lack", why),
                            NoticeKind::buffer_full});
  for (Peer& p : peers_) {
    auto* matching = p.in<Peer::Matching>();
    if (matching && matching->answer && p.config.buffer) match(p, MatchState(*matching->answer));
  }
}

// Records of the spill are not in the log, so the table of epochs decides. It may not reach back.
bool PeerLinks::lossy_behind(RecordNo end, Lsn lsn) const {
  if (membership_.lossy_behind(end)) return true;
  if (end >= v_.log.first()) return false;
  EpochTable epochs = term_.epochs();
  bool reaches = std::any_of(epochs.begin(), epochs.end(),
                             [&](const EpochEntry& e) { return e.start <= lsn + 1; });
  return !reaches || std::any_of(epochs.begin(), epochs.end(), [&](const EpochEntry& e) {
    return e.start > lsn && (e.flags & epoch_lossy);
  });
}

// ---- what the peer has

std::optional<RecordNo> PeerLinks::acknowledged(const Peer& peer, const Peer::Streaming& stream,
                                                const LogMark& mark) const {
  if (auto end = v_.log.find(mark)) return end;
  if (mark == stream.begun_after) return stream.begun_at;
  if (mark == peer.durable_mark) return peer.durable_end;
  auto of = std::find_if(stream.sent.begin(), stream.sent.end(),
                         [&](const auto& s) { return s.mark == mark; });
  return of == stream.sent.end() ? std::nullopt : std::optional(of->end);
}

RecordNo PeerLinks::received(const Peer::Streaming& stream, Lsn lsn) const {
  if (lsn >= v_.log.tail_mark().lsn) return v_.log.end_upto(lsn);
  RecordNo end = std::min(std::max(stream.begun_at, stream.received_end), v_.log.first());
  auto behind = std::partition_point(stream.sent.begin(), stream.sent.end(),
                                     [&](const auto& sent) { return sent.mark.lsn <= lsn; });
  if (behind != stream.sent.begin()) end = std::prev(behind)->end;
  return end;
}

}  // namespace twinloft::repl::core
