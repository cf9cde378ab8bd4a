#include "term.h"

#include <algorithm>
#include <bit>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

void Term::begin(const Epoch& epoch, ReplicaSet in_sync, const Grounds& grounds) {
  TL_CHECK(epoch.counter > epoch_.counter);
  TL_CHECK((in_sync & set_of(v_.sb.replica)) != 0);
  before_ |= in_sync_;  // the former members stay required until the new record is durable
  epoch_ = epoch;
  in_sync_ = in_sync;
  grounds_ = grounds;
  logged_ = false;
}

void Term::note_logged(RecordNo end) {
  TL_CHECK(!logged_ && end == v_.log.end());
  end_ = end;
  logged_ = true;
}

void Term::settle() {
  TL_CHECK(logged_ && durable_on(in_sync_) >= end_);
  before_ = 0;
}

EpochTable Term::epochs() const {
  EpochTable all = v_.sb.epochs;
  if (!logged_)
    all.note({epoch_, v_.log.last_mark().lsn + 1, v_.sb.replica, in_sync_, grounds_.flags,
              grounds_.granted_after});
  return all;
}

bool Term::required(const Peer& peer) const {
  return (counted() & set_of(peer.id())) != 0 || peer.adding;
}

bool Term::suspended() const {
  if (static_cast<unsigned>(std::popcount(in_sync_)) < v_.config.min_in_sync) return true;
  return std::any_of(peers_.begin(), peers_.end(),
                     [&](const Peer& p) { return required(p) && (!p.is_streaming() || p.filling()); });
}

RecordNo Term::durable_on(ReplicaSet set) const {
  RecordNo end = v_.log.durable_end();
  for (const Peer& p : peers_)
    if (set & set_of(p.config.id)) end = std::min(end, p.durable_end);
  return end;
}

// An absent member counts as empty: it may follow a newer epoch, and may have cut off records that it
// acknowledged. Records that all required replicas have are committed even during a suspension, since a
// resync waits for that.
RecordNo Term::committable_end() const {
  RecordNo committed = v_.log.durable_end();
  for (const Peer& p : peers_)
    if (required(p)) committed = std::min(committed, p.is_streaming() ? p.durable_end : 0);
  return std::max(committed, v_.log.committed_end());  // a new member may lack committed records
}

// Nothing waits for an absent peer that is not required, or for one behind a buffered link: the journal keeps
// the records for it.
RecordNo Term::acked_end() const {
  RecordNo end = v_.log.durable_end();
  for (const Peer& p : peers_) {
    if (required(p)) end = std::min(end, p.durable_end);
    const Peer::Streaming* stream = p.streaming();
    if (!stream) continue;
    if (p.config.protocol == Protocol::B) end = std::min(end, stream->received_end);
    if (p.config.protocol == Protocol::A && !p.config.buffer)
      end = std::min(end, stream->source.answered ? stream->sent_end : stream->received_end);
  }
  return end;
}

}  // namespace twinloft::repl::core
