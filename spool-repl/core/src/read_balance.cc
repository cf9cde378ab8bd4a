#include "read_balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr std::uint64_t queue_max = 2048;    // blocks in flight to one peer
constexpr std::uint64_t weight_of_read = 4;  // in blocks: what a read costs whatever its length
constexpr double part_of_sample = 1.0 / 8;
constexpr unsigned reads_of_congestion = 4;  // less is no congestion
constexpr Duration rest_after_silence = std::chrono::seconds(5);
constexpr Duration rest_after_decline = std::chrono::milliseconds(100);
constexpr Duration fresh_for = std::chrono::milliseconds(200), half_life = std::chrono::milliseconds(100);
constexpr double advantage = 0.75;  // an answer costs processor time on both machines

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
}  // namespace

ReadBalance::ReadBalance(Volume& volume, const Peers& peers, const Term& term)
    : v_(volume), peers_(peers), term_(term) {}

// ---- the choice

bool ReadBalance::may_ask(const Peer& p) const {
  const Link* link = v_.find_link(p.id());
  bool member = (term_.in_sync() & set_of(p.id())) != 0 && p.config.protocol == Protocol::C;
  if (!member || !p.is_streaming() || p.filling() || !link->up || !link->knows_reads) return false;
  if (!link->state || link->state->inconsistent) return false;
  auto place = places_.find(p.id());
  return place == places_.end() || (v_.now >= place->second.rests_until && place->second.queue < queue_max);
}

bool ReadBalance::is_alone(Lba first, std::uint64_t blocks) const {
  const std::uint64_t stripe = v_.read_policy.stripe_blocks;
  const bool one_stripe = v_.read_policy.kind != ReadPolicy::Kind::striped ||
                          first.v % stripe + blocks <= stripe;
  return here_.reads == 0 && one_stripe;
}

ReadBalance::Choice ReadBalance::choose(Lba lba, std::uint64_t blocks, bool alone) {
  using enum ReadPolicy::Kind;
  if (v_.read_policy.kind == prefer_local || v_.failed || term_.lost()) return {0, blocks};
  Choice choice{0, std::min<std::uint64_t>(blocks, read_blocks_max)};
  switch (v_.read_policy.kind) {
    case prefer_local:
      break;
    case prefer_remote:
      choice.peer = fewest(false);
      break;
    case round_robin:
      if (!alone) choice.peer = in_turn();
      break;
    case least_pending:
      choice.peer = fewest(true);
      break;
    case when_congested_remote:
      choice.peer = fastest(choice.blocks + weight_of_read);
      break;
    case striped: {
      const std::uint64_t stripe = v_.read_policy.stripe_blocks;
      const std::uint64_t rest_of_stripe = stripe - lba.v % stripe;
      if (alone || std::none_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return may_ask(p); }))
        break;
      turn_ = lba.v / stripe;
      return {in_turn(), std::min(blocks, rest_of_stripe)};
    }
  }
  if (choice.peer == 0) choice.blocks = blocks;
  return choice;
}

ReplicaId ReadBalance::fewest(bool with_local) {
  ReplicaId best = 0;
  std::uint64_t least = with_local ? here_.queue : UINT64_MAX;
  for (const Peer& p : peers_)
    if (may_ask(p) && of(p.id()).queue < least) best = p.id(), least = of(p.id()).queue;
  return best;
}

// The place number turn_ of this replica and those that may be asked.
ReplicaId ReadBalance::in_turn() {
  auto may = static_cast<std::uint64_t>(
      std::count_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return may_ask(p); }));
  std::uint64_t place = turn_++ % (may + 1);
  if (place == 0) return 0;
  for (const Peer& p : peers_)
    if (may_ask(p) && --place == 0) return p.id();
  return 0;
}

// The time of an answer grows with the queue before it, at a rate that is measured. An old measurement counts
// less and less, and its peer gets one read at a time.
ReplicaId ReadBalance::fastest(std::uint64_t weight) {
  if (here_.reads < reads_of_congestion || here_.cost == 0) return 0;
  ReplicaId best = 0;
  double least = here_.expected(weight) * advantage;
  for (const Peer& p : peers_) {
    if (!may_ask(p)) continue;
    const Place& place = of(p.id());
    Duration age = v_.now - place.measured;
    bool fresh = place.cost != 0 && age <= fresh_for;
    if (!fresh && place.queue > 0) continue;
    double expected = place.expected(weight) * (fresh ? 1 : std::exp2(-seconds(age) / seconds(half_life)));
    if (expected < least) best = p.id(), least = expected;
  }
  return best;
}

// ---- what is in flight

ReadBalance::Begun ReadBalance::begin_local(std::uint64_t blocks) {
  here_.reads++;
  here_.queue += blocks + weight_of_read;
  return {v_.now, blocks + weight_of_read, here_.queue};
}

void ReadBalance::end_local(const Begun& read) {
  TL_CHECK(here_.reads > 0 && here_.queue >= read.weight);
  here_.reads--;
  here_.queue -= read.weight;
  measure(here_, read);
}

void ReadBalance::measure(Place& place, const Begun& read) const {
  double sample = seconds(v_.now - read.since) / static_cast<double>(read.queue);
  place.cost = place.cost == 0 ? sample : place.cost + (sample - place.cost) * part_of_sample;
  place.measured = v_.now;
}

void ReadBalance::ask(ReplicaId peer, Lba lba, std::uint64_t blocks, std::uint64_t owner) {
  const Peer& p = *peers_.find(peer);
  Place& place = of(peer);
  std::uint64_t weight = blocks + weight_of_read;
  place.queue += weight;
  auto count = static_cast<std::uint32_t>(blocks);
  asked_.emplace(++last_seq_, Asked{peer,
                                    v_.find_link(peer)->connection,
                                    p.epoch,
                                    lba,
                                    count,
                                    owner,
                                    v_.home_changes,
                                    {v_.now, weight, place.queue},
                                    v_.now + v_.config.balanced_read_timeout});
  v_.out.sends.push_back(Send{peer, ReadBlocks{p.epoch, last_seq_, lba, count, v_.commit_lsn()}});
}

ReadBalance::Answer ReadBalance::take(ReplicaId from, const BlocksRead& m, Asked& to) {
  auto it = asked_.find(m.seq);
  if (it == asked_.end()) return Answer::refused;
  const Asked& asked = it->second;
  if (asked.peer != from || asked.epoch != m.epoch || (m.blocks != 0 && m.blocks != asked.blocks))
    return Answer::refused;
  to = asked;
  asked_.erase(it);
  Place& place = of(from);
  place.queue -= to.read.weight;
  if (to.given_up) return Answer::late;
  if (m.blocks == 0) {
    rest(from, rest_after_decline);
  } else {
    measure(place, to.read);
    place.answered++;
  }
  return Answer::asked;
}

void ReadBalance::note_wrong(const Asked& asked, Lba lba) {
  Place& place = of(asked.peer);
  if (place.wrong++ == 0)
    v_.out.notices.push_back(
        {true,
         fmt::format(
             "replica {} answered a read of block {} with other content than was written: it is read here",
             asked.peer, lba.v),
         NoticeKind::other, asked.peer});
  rest(asked.peer, rest_after_silence);
}

// A question that is late stays in its peer's queue until the answer or the end of the connection. So a slow
// line gets no more questions than it carries.
std::vector<ReadBalance::Asked> ReadBalance::take_overdue() {
  std::vector<Asked> overdue;
  for (auto it = asked_.begin(); it != asked_.end();) {
    Asked& asked = it->second;
    const Link* link = v_.find_link(asked.peer);
    bool gone = !link->up || link->connection != asked.connection;
    bool late = v_.now >= asked.until;
    if (!asked.given_up && (gone || late || term_.lost() || v_.failed)) {
      asked.given_up = true;
      overdue.push_back(asked);
      if (!gone && late) rest(asked.peer, rest_after_silence);
    }
    if (gone) of(asked.peer).queue -= asked.read.weight;
    it = gone ? asked_.erase(it) : std::next(it);
  }
  return overdue;
}

std::optional<Instant> ReadBalance::next_tick() const {
  for (const auto& [seq, asked] : asked_)
    if (!asked.given_up) return asked.until;  // the oldest
  return std::nullopt;
}

void ReadBalance::fill_status(VolumeStatus& s) const {
  s.read_policy = v_.read_policy;
  for (PeerStatus& p : s.peers) {
    auto place = places_.find(p.id);
    if (place != places_.end()) p.reads = place->second.answered, p.wrong_reads = place->second.wrong;
  }
}

void ReadBalance::check_invariants() const {
  std::map<ReplicaId, std::uint64_t> queues;
  for (const auto& [seq, asked] : asked_) {
    TL_CHECK(seq <= last_seq_ && asked.blocks > 0);
    queues[asked.peer] += asked.read.weight;
  }
  for (const auto& [peer, place] : places_) TL_CHECK(place.queue == queues[peer]);
}

}  // namespace twinloft::repl::core
