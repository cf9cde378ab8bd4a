// The primary's side of buffered links: the bound of each buffer, and its reports of the lag.
// lag.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "peer_links.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {

std::string lag_text(const FarBuffers& far, const FarBuffer& b, Instant now) {
  return fmt::format("replica {} is {} MiB and {} s behind", b.of, far.lag_bytes(b) >> 20,
                     std::chrono::duration_cast<std::chrono::seconds>(far.lag(b, now)).count());
}

}  // namespace

void PeerLinks::bound_buffers() {
  for (FarBuffer& b : v_.far) {
    Peer& p = *peers_.find(b.of);
    Peer::Streaming* stream = p.streaming();
    // The records before the stream's begin are durable there only once the peer says so. The rate counts
    // from the next time on: until then, the place is that of an earlier connection.
    bool known = stream && p.durable_end >= stream->begun_at;
    if (known) v_.far.follows(b, p.durable_end, p.durable_mark, v_.now);
    std::uint64_t written = v_.log.pos_before(v_.log.end()).v;
    bool measures = known && std::exchange(stream->place_known, true);
    b.line.note(written, measures ? std::optional(written - v_.far.lag_bytes(b)) : std::nullopt, v_.now);
    bound_buffer(b, p);
  }
}

void PeerLinks::bound_buffer(FarBuffer& b, Peer& p) {
  if (b.full && v_.far.eased(b)) {
    b.full = false;
    v_.out.notices.push_back(
        {false, fmt::format("{}: writers do not wait for it any more", lag_text(v_.far, b, v_.now)),
         NoticeKind::buffer_eased, b.of});
  }
  if (!v_.far.at_bound(b)) return;
  std::string full = fmt::format("{}, and its buffer of {} MiB is full", lag_text(v_.far, b, v_.now),
                                 v_.far.bound(b) >> 20);
  if (b.config.when_full == BufferConfig::WhenFull::resync) return give_up(b, p, full);
  if (!b.full) {
    b.full = true;
    b.progress_at = v_.now;
    v_.out.notices.push_back({true, full + ": writers wait for it", NoticeKind::buffer_full, b.of});
  }
  if (v_.now - b.progress_at >= v_.config.slow_peer)
    give_up(b, p,
            fmt::format("{}, without progress for {} s", full,
                        std::chrono::duration_cast<std::chrono::seconds>(v_.config.slow_peer).count()));
}

void PeerLinks::give_up(FarBuffer& b, Peer& p, const std::string& why) {
  v_.far.give_up(b, v_.now);
  v_.out.notices.push_back(
      {true, fmt::format("{}: a resync will bring what it lacks", why), NoticeKind::buffer_full, b.of});
  if (p.is_streaming()) refuse(v_, p, why);
}

// Otherwise the buffer would be full again before the resync has ended, and the next resync would follow.
bool PeerLinks::waits_for_line(const Peer& p) const {
  const FarBuffer* b = v_.far.find(p.id());
  return b && b->given_up() && !b->line.carries_the_load() &&
         v_.now - *b->given_up_at < v_.config.buffer_patience;
}

void PeerLinks::report_lags() {
  if (v_.far.empty() || v_.now < next_report_) return;
  next_report_ = v_.now + v_.config.buffer_interval;
  for (const FarBuffer& b : v_.far) {
    Peer& of = *peers_.find(b.of);
    if (auto* stream = of.streaming(); stream && !b.given_up() && v_.find_link(b.of)->knows_buffers) {
      auto lag = std::chrono::duration_cast<std::chrono::milliseconds>(v_.far.lag(b, v_.now));
      Behind behind{of.epoch, v_.log.last_mark().lsn, b.has.lsn, v_.far.lag_bytes(b),
                    static_cast<std::uint64_t>(lag.count())};
      if (stream->behind_told != behind) v_.out.sends.push_back(Send{b.of, behind});
      stream->behind_told = behind;
    }
    for (Peer& p : peers_) tell_to_keep(p, b);
  }
}

void PeerLinks::tell_to_keep(Peer& p, const FarBuffer& b) {
  Peer::Streaming* stream = p.streaming();
  if (!stream || p.config.buffer || !v_.find_link(p.id())->knows_buffers) return;
  KeepFor keep{p.epoch, b.of, b.given_up(), b.has};
  if (std::exchange(stream->keep_told[b.of], keep) == keep) return;
  v_.out.sends.push_back(Send{p.id(), keep});
}

std::optional<Instant> PeerLinks::next_far_tick() const {
  std::optional<Instant> next;
  auto consider = [&](Instant at) { next = std::min(next.value_or(at), at); };
  for (const FarBuffer& b : v_.far) {
    const Peer& p = *peers_.find(b.of);
    if (b.full) consider(b.progress_at + v_.config.slow_peer);
    if (p.in<Peer::Matching>() && waits_for_line(p)) consider(b.line.next());
    if (!b.given_up() && b.need < v_.log.end()) consider(next_report_);
  }
  return next;
}

}  // namespace twinloft::repl::core
