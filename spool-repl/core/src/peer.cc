#include "peer.h"

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

Peers::Peers(const Config& config) {
  peers_.reserve(config.peers.size());
  for (const PeerConfig& p : config.peers) peers_.emplace_back(p);
}

Peer* Peers::find(ReplicaId id) {
  for (Peer& p : peers_)
    if (p.id() == id) return &p;
  return nullptr;
}

ConnectionState Peer::connection() const {
  if (in<Away>()) return ConnectionState::Connecting;
  if (in<StandAlone>()) return ConnectionState::StandAlone;
  return is_streaming() ? ConnectionState::Connected : ConnectionState::Matching;
}

bool Peer::away() const {
  return in<Away>() || in<StandAlone>();
}

Peer::Resync* Peer::resync() {
  std::optional<Resync>* slot = nullptr;
  if (auto* s = streaming()) slot = &s->resync;
  if (auto* s = in<StandAlone>()) slot = &s->resync;
  return slot && *slot ? &**slot : nullptr;
}

RecordNo Peer::hold() const {
  if (auto* s = in<OfferingResync>()) return s->hold;
  auto* s = in<StandAlone>();
  return s ? s->hold : 0;
}

RecordNo Peer::sent_end() const {
  return is_streaming() ? streaming()->sent_end : last_sent_;
}

RecordNo Peer::received_end() const {
  return is_streaming() ? streaming()->received_end : last_received_;
}

void Peer::leave_stream() {
  last_sent_ = sent_end();
  last_received_ = received_end();
}

void Peer::connect(const Epoch& named) {
  leave_stream();
  state_ = Matching{};
  connection_no++;
  epoch = named;
}

void Peer::disconnect() {
  leave_stream();
  if (in<StandAlone>())
    state_ = StandAlone{};
  else
    state_ = Away{};
}

void Peer::offer(const OfferingResync& offer) {
  TL_CHECK(in<Matching>() && in<Matching>()->answer && offer.hold != 0);
  state_ = offer;
}

Peer::Streaming& Peer::stream(RecordNo from, const LogMark& mark) {
  TL_CHECK((in<Matching>() && in<Matching>()->answer) || in<OfferingResync>());
  auto& s = state_.emplace<Streaming>();
  s.begun_at = s.sent_end = from;
  s.begun_after = s.sent_mark = mark;
  why.clear();
  return s;
}

void Peer::Streaming::note_sent(const LogMark& mark, std::uint64_t bytes) {
  sent.push_back({++sent_end, mark, bytes});
  sent_bytes += bytes;
  sent_mark = mark;
}

void Peer::Streaming::go_back(RecordNo end, const LogMark& mark) {
  for (; !sent.empty() && sent.back().end > end; sent.pop_back()) sent_bytes -= sent.back().bytes;
  sent_end = end;
  sent_mark = mark;
  chunk.reset();
}

void Peer::Streaming::note_durable(RecordNo end) {
  for (; !sent.empty() && sent.front().end <= end; sent.pop_front()) sent_bytes -= sent.front().bytes;
}

void Peer::stand_alone(std::string reason) {
  why = std::move(reason);
  if (in<StandAlone>()) return;
  leave_stream();
  StandAlone next;
  next.hold = hold();
  if (auto* s = streaming()) next.resync = std::move(s->resync);
  state_ = std::move(next);
}

void Peer::end_resync() {
  TL_CHECK(resync() != nullptr);
  if (auto* s = streaming())
    s->resync.reset();
  else
    in<StandAlone>()->resync.reset();
}

void refuse(Volume& volume, Peer& peer, std::string reason, bool split_brain) {
  peer.stand_alone(reason);
  volume.out.notices.push_back({true, fmt::format("peer {}: {}", peer.id(), reason),
                                split_brain ? NoticeKind::split_brain : NoticeKind::refused, peer.id()});
  volume.find_link(peer.id())->refused = true;
  volume.out.sends.push_back(Send{peer.id(), Refuse{reason, split_brain}});
  volume.out.closes.push_back({peer.id(), std::move(reason)});
}

}  // namespace twinloft::repl::core
