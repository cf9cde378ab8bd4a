// Matching: finds the last record that both logs have, and decides between records, resync and refusal.
#include <algorithm>

#include "peer_links.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

void PeerLinks::handle(Peer& peer, const MatchState& m) {
  if (!peer.in<Peer::Matching>()) return refuse(v_, peer, "unrequested answer about the log");
  match(peer, m);
}

void PeerLinks::match(Peer& peer, const MatchState& m) {
  TL_CHECK(peer.in<Peer::Matching>());
  const Epoch& ours = term_.epoch();
  bool newer = m.last_epoch.counter > ours.counter;
  if (newer || (m.last_epoch.counter == ours.counter && m.last_epoch.id != ours.id))
    return unknown_epoch(peer, m.last_epoch.counter);
  auto& matching = *peer.in<Peer::Matching>();
  matching.answer = m;
  matching.again = false;
  matching.search.reset();
  if (matching.reading) return;  // the chunk leads back here
  if (auto end = v_.log.find(m.last)) return begin(peer, *end, m.last);
  if (search_spill(peer, m.last)) return;
  // Only records at or after the tail of the peer's log can be found there.
  Peer::Matching::Search search;
  search.low = std::max(v_.log.first(), v_.log.end_upto({m.tail.lsn.v == 0 ? 0 : m.tail.lsn.v - 1}));
  while (search.low < v_.log.end() && v_.log.mark_before(search.low).lsn < m.tail.lsn) ++search.low;
  if (v_.log.mark_before(search.low).lsn < m.tail.lsn) return begin_resync(peer);
  search.high = v_.log.end_upto(m.last.lsn);
  matching.search = search;
  probe_next(peer);
}

// The peer has the record of an unknown epoch. It began here and was lost in a crash, or it began on the
// peer. With the manual arbiter a newer epoch begins here, and the peer refuses a cut of acknowledged
// records. An external arbiter is asked, since it knows all epochs.
void PeerLinks::unknown_epoch(Peer& peer, std::uint64_t counter) {
  if (membership_.begin_epoch_behind(counter)) {
    peer.epoch = term_.epoch();
    v_.out.sends.push_back(Send{peer.id(), MatchRequest{term_.epoch()}});
    return;
  }
  if (v_.config.arbiter == Arbiter::external) membership_.ask_whether_granted(counter);
  refuse(v_, peer,
         fmt::format("replica {} has epoch {}, which replica {} does not know", peer.id(), counter,
                     v_.sb.replica));
}

// Binary search: the histories are equal up to a record and differ after it.
void PeerLinks::probe_next(Peer& peer) {
  TL_CHECK(peer.in<Peer::Matching>() && peer.in<Peer::Matching>()->search);
  Peer::Matching::Search& search = *peer.in<Peer::Matching>()->search;
  if (search.low < v_.log.first()) {  // the tail has moved since
    search.low = v_.log.first();
    search.low_known = false;
  }
  if (search.low > search.high) return begin_resync(peer);
  if (search.low == search.high && search.low_known)
    return begin(peer, search.low, v_.log.mark_before(search.low));
  search.probing = search.low + (search.high - search.low + (search.low_known ? 1 : 0)) / 2;
  search.mark = v_.log.mark_before(search.probing);
  v_.out.sends.push_back(Send{peer.id(), Probe{search.mark}});
}

void PeerLinks::handle(Peer& peer, const ProbeReply& m) {
  auto* matching = peer.in<Peer::Matching>();
  if (!matching || !matching->search || m.mark != matching->search->mark)
    return refuse(v_, peer, "unrequested answer about the log");
  Peer::Matching::Search& search = *matching->search;
  if (m.found) {
    search.low = search.probing;
    search.low_known = true;
  } else {
    search.high = search.probing - 1;
  }
  probe_next(peer);
}

// A peer cuts its log for the newest epoch in our table, and remembers that epoch. If the epoch's record were
// not durable here, a crash could leave an epoch that only the peer knows. The next promotion here could take
// the same counter. A peer whose records were given up waits until its line can carry the load.
bool PeerLinks::has_to_wait(Peer& peer) {
  if (!term_.in_flight() && !waits_for_line(peer)) return false;
  peer.in<Peer::Matching>()->again = true;
  return true;
}

void PeerLinks::match_those_that_wait() {
  if (term_.in_flight()) return;
  for (Peer& p : peers_) {
    const auto* matching = p.in<Peer::Matching>();
    if (matching && matching->again && matching->answer && !waits_for_line(p))
      match(p, MatchState(*matching->answer));
  }
}

void PeerLinks::begin_resync(Peer& peer, RecordNo common_end) {
  if (!has_to_wait(peer)) resync_.offer(peer, common_end);
}

void PeerLinks::begin(Peer& peer, RecordNo common_end, const LogMark& from) {
  if (has_to_wait(peer)) return;
  TL_CHECK(peer.in<Peer::Matching>() && peer.in<Peer::Matching>()->answer);
  TL_CHECK((v_.log.first() <= common_end || v_.far.spill().holds(common_end)) && common_end <= v_.log.end());
  const MatchState answer = *peer.in<Peer::Matching>()->answer;
  if (common_end >= v_.log.first() && common_end < v_.readable_from) return begin_resync(peer);
  const auto& state = v_.find_link(peer.id())->state;
  Verdict verdict = judge_peer(from.lsn, answer.commit, state ? &*state : nullptr);
  if (std::holds_alternative<verdict::Resync>(verdict)) return begin_resync(peer);
  if (auto* split = std::get_if<verdict::SplitBrain>(&verdict)) {
    v_.note_split_brain(peer.id(), from.lsn);
    return refuse(v_, peer, std::move(split->why), true);
  }
  // After a promotion in spite of a loss, the data area here has blocks of lost records. Only a resync brings
  // them to the peer.
  if (lossy_behind(common_end, from.lsn))
    return common_end < v_.log.first() ? begin_resync(peer) : begin_resync(peer, common_end);
  Peer::Streaming& stream = peer.stream(common_end, from);
  peer.refill = term_.required(peer) && common_end < v_.log.committed_end() ? v_.log.end() : 0;
  // Until the peer's first ack, only what it acknowledged earlier is known to be durable there.
  if (peer.durable_end >= common_end) peer.durable_end = common_end, peer.durable_mark = from;
  stream.received_end = peer.durable_end;
  v_.out.sends.push_back(
      Send{peer.id(), Begin{peer.epoch, from, membership_.held_by(peer, answer.last.lsn), term_.epochs()}});
  v_.out.notices.push_back({false, fmt::format("peer {} is connected at {}", peer.id(), from.lsn.v),
                            NoticeKind::connected, peer.id()});
  const Link* link = v_.find_link(peer.id());
  peer.incomplete = peer.incomplete && !link->state;
  if (link->state && link->state->inconsistent) resync_.resume(peer, *link->state, from.lsn);
  TL_CHECK(peer.durable_end <= stream.received_end && stream.received_end <= stream.sent_end);
  TL_CHECK(!link->state || peer.incomplete == (peer.resync() != nullptr));
}

}  // namespace twinloft::repl::core
