#include "secondary.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

namespace {
constexpr const char* just_ending = "the previous resync is still being completed";
}

Secondary::Secondary(Volume& volume, Checkpointer& checkpointer)
    : v_(volume),
      checkpointer_(checkpointer),
      target_(volume, checkpointer),
      rejoin_(volume, checkpointer, target_),
      discarding_(volume, rejoin_),
      intake_(volume),
      service_(volume) {
  epoch_ = v_.log.epoch_before(v_.log.end());
}

void Secondary::submit(const ClientRequest& request) {
  v_.out.completions.push_back({request.id, EROFS});
}

Secondary::Incoming* Secondary::incoming() {
  if (auto* b = std::get_if<Begun>(&link_)) return &b->in;
  auto* f = std::get_if<Following>(&link_);
  return f ? &f->in : nullptr;
}

ConnectionState Secondary::connection() const {
  if (is<Unconnected>()) return ConnectionState::Connecting;
  if (is<Refused>()) return ConnectionState::StandAlone;
  return is<Following>() ? ConnectionState::Connected : ConnectionState::Matching;
}

void Secondary::refuse(std::string reason, bool split_brain) {
  if (primary_ == 0) return;
  link_ = Refused{};
  note_refusal(reason, split_brain);
  v_.refuse_link(primary_, reason, split_brain);
}

// The match has found common_ by now.
void Secondary::note_refusal(const std::string& reason, bool split_brain) {
  why_ = reason;
  why_of_ = primary_;
  if (!split_brain) return;
  v_.note_split_brain(primary_, common_);
  discarding_.note_split_brain(primary_, common_);
}

void Secondary::forget_primary() {
  link_ = Unconnected{};
  keep_.clear();
  primary_ = 0;
  drop_resync();
}

void Secondary::drop_resync() {
  rejoin_.drop();
  target_.drop();
}

void Secondary::peer_down(ReplicaId id) {
  service_.ended(id);
  intake_.peer_down(id);
  if (id != primary_) return;
  if (is<Following>())
    v_.out.notices.push_back(
        {true, fmt::format("connection to primary {} lost", id), NoticeKind::disconnected, id});
  forget_primary();
}

void Secondary::peer_state(ReplicaId id, const NodeState& state) {
  if (id != primary_ || state.primary) return;
  v_.out.notices.push_back({false, fmt::format("replica {} is no longer primary", id), NoticeKind::role, id});
  forget_primary();
}

void Secondary::peer_input(ReplicaId id, PeerMessage message) {
  if (auto* request = std::get_if<MatchRequest>(&message)) return match(id, *request);
  if (step_relay(id, message)) return;
  if (id != primary_) {
    // Messages that were in flight when the peer ceased to be the primary are dropped. A refusal is reported.
    if (auto* m = std::get_if<Refuse>(&message)) v_.out.closes.push_back({id, m->reason});
    return;
  }
  if (is<Refused>()) return;
  if (v_.failed) return refuse(fmt::format("replica {} has failed: {}", v_.sb.replica, v_.failure));
  std::visit(
      [&](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, MatchState> || std::is_same_v<M, ProbeReply> ||
                      std::is_same_v<M, Ack> || std::is_same_v<M, TakeAfter> || std::is_same_v<M, RelayLost>)
          refuse("unexpected message of a secondary: both replicas may be secondary");
        else if constexpr (std::is_same_v<M, SyncData> || std::is_same_v<M, SyncCheck> ||
                           std::is_same_v<M, SyncEnd>)
          pass_on(m);
        else if constexpr (!std::is_same_v<M, MatchRequest> && !std::is_same_v<M, NodeState> &&
                           !std::is_same_v<M, Claim> && !std::is_same_v<M, ClaimReply> &&
                           !std::is_same_v<M, SyncReady> && !std::is_same_v<M, SyncAck> &&
                           !std::is_same_v<M, SyncDiffer> && !std::is_same_v<M, FetchBlock> &&
                           !std::is_same_v<M, FetchedBlock> && !std::is_same_v<M, ReadBlocks> &&
                           !std::is_same_v<M, BlocksRead> && !std::is_same_v<M, Subscribe> &&
                           !std::is_same_v<M, Subscribed> && !std::is_same_v<M, Taken> &&
                           !std::is_same_v<M, SubscriptionEnded>)
          handle(m);
      },
      message);
}

// `id` is primary. It replaces another connected primary only if its epoch is newer.
void Secondary::match(ReplicaId id, const MatchRequest& m) {
  if (primary_ != 0 && primary_ != id) {
    if (m.epoch.counter <= epoch_.counter)
      return v_.refuse_link(id, fmt::format("replica {} is primary since epoch {}, which is newer than {}",
                                            primary_, epoch_.counter, m.epoch.counter));
    refuse(fmt::format("replica {} is primary since epoch {}", id, m.epoch.counter));
  }
  if (primary_ != id) forget_primary();
  primary_ = id;
  if (v_.failed) return refuse(fmt::format("replica {} has failed: {}", v_.sb.replica, v_.failure));
  link_ = Matching{};
  drop_resync();
  common_ = {};
  epoch_ = m.epoch;
  if (discarding_.comes(id)) return begin_discard(m);
  answer_match();
}

void Secondary::answer_match() {
  TL_CHECK(primary_ != 0 && (is<Matching>() || is<Begun>()));
  Epoch seen = v_.log.epoch_before(v_.log.end());
  v_.out.sends.push_back(
      Send{primary_, MatchState{seen, v_.log.tail_mark(), v_.log.last_mark(), v_.commit_lsn()}});
}

// The winner wants to match. It gets its answer only after the history here has been given up.
void Secondary::begin_discard(const MatchRequest& m) {
  if (rejoin_.stores_reset()) {
    if (rejoin_.gives_up()) return;  // began on an earlier connection
    discarding_.end(false, "a resync into this replica has begun meanwhile");
    return answer_match();
  }
  if (std::string doubt = discarding_.doubt_of_winner(); !doubt.empty()) {
    discarding_.end(false, fmt::format("nothing was discarded for replica {}: {}", primary_, doubt));
    return answer_match();
  }
  SyncBegin nothing{m.epoch, {Lsn{0}, genesis_hash(v_.sb.volume, v_.sb.volume_blocks)}, {}, true, {}, {}, {}};
  rejoin_.reset({primary_, std::move(nothing), true});
}

// If the tail has moved since the last MatchState, the primary may probe a record before the tail. A new
// MatchState makes it search again.
void Secondary::handle(const Probe& m) {
  bool matching = is<Matching>() || is<Begun>();
  if (matching && m.mark.lsn < v_.log.tail_mark().lsn) return answer_match();
  bool found = v_.log.find(m.mark).has_value();
  if (found) common_ = std::max(common_, m.mark.lsn);
  v_.out.sends.push_back(Send{primary_, ProbeReply{m.mark, found}});
}

// ---- the records of the primary continue the log here

// The checks of a *begin* that do not compare the histories.
std::string Secondary::why_not_begun(const Begin& m) const {
  if (!is<Matching>() || m.epoch != epoch_) return "records offered at the wrong time";
  if (rejoin_.resets()) return fmt::format("replica {} is discarding its log for a resync", v_.sb.replica);
  if (target_.ends()) return just_ending;
  Epoch seen = v_.log.epoch_before(v_.log.end());
  if (m.epoch.counter < seen.counter || (m.epoch.counter == seen.counter && m.epoch.id != seen.id))
    return fmt::format("primary {} is in epoch {}, but the log of replica {} already has epoch {}", primary_,
                       m.epoch.counter, v_.sb.replica, seen.counter);
  if (!v_.log.find(m.from))
    return fmt::format("primary {} continues from LSN {}, which is not in the log of replica {}", primary_,
                       m.from.lsn.v, v_.sb.replica);
  return "";
}

void Secondary::handle(const Begin& m) {
  if (std::string why = why_not_begun(m); !why.empty()) return refuse(std::move(why));
  common_ = std::max(common_, m.from.lsn);
  Verdict verdict = judge_records(v_.history(), {primary_, m.epoch, m.epochs, m.from.lsn});
  if (auto* split = std::get_if<verdict::SplitBrain>(&verdict)) return refuse(std::move(split->why), true);
  if (std::holds_alternative<verdict::Resync>(verdict))
    return refuse(fmt::format("primary {} continues from LSN {}, but replica {} has committed LSN {}",
                              primary_, m.from.lsn.v, v_.sb.replica, v_.commit_lsn().v));
  TL_CHECK(m.from.lsn >= v_.commit_lsn());
  if (!adopt_source(m))
    return refuse(fmt::format(
        "an unfinished resync has left content that replica {} does not have: a full resync is needed",
        primary_));
  begin();
  note_lost(m);
  // An earlier cut for another history must not stay recorded: the new records belong to this primary.
  bool other_cut = v_.ends_in_a_cut() && !m.epochs.holds(v_.sb.cut_for.epoch);
  bool lost = m.holds > m.from.lsn;
  if (*v_.log.find(m.from) == v_.log.end() && rejoin_.steady() && !lost && !other_cut) return connected();
  rejoin_.cut({primary_, m.from, m.epochs.empty() ? EpochEntry{} : m.epochs.back()});
}

// From now on, records and commit points of this primary may arrive.
void Secondary::begin() {
  TL_CHECK(is<Matching>() && primary_ != 0);
  link_ = Begun{};
  if (v_.disk.inconsistent()) target_.begin({primary_, epoch_});
}

// Records that this replica has acknowledged and lost. The note is durable before the first of them is taken.
void Secondary::note_lost(const Begin& m) {
  if (m.holds <= m.from.lsn) return;
  auto of = std::find_if(m.epochs.rbegin(), m.epochs.rend(),
                         [&](const EpochEntry& e) { return e.start <= m.holds; });
  v_.disk.note_refill(m.holds, epoch_, of == m.epochs.rend() ? epoch_ : of->epoch);
}

// A resync continues with another primary. Its content is written home only once the superblock names this
// source. False: the history of this primary lacks content of the former source, so the data area is unknown
// and needs a full resync.
bool Secondary::adopt_source(const Begin& m) {
  const auto* syncing = v_.disk.syncing();
  if (!syncing || syncing->source.id == m.epoch.id) return true;
  bool useless = syncing->base && !holds_source(v_.history(), {primary_, m.epoch, m.epochs, m.from.lsn});
  v_.disk.change_source(m.epoch, !useless);
  v_.write_superblock(Volume::for_source);
  return !useless;
}

void Secondary::after_cut(const std::optional<Rejoin::Cut>& done) {
  if (!done || !is<Begun>() || done->to != v_.log.last_mark()) return;
  connected();
}

void Secondary::on_cut_durable() {
  after_cut(rejoin_.on_cut_durable());
}

void Secondary::on_erased(int error) {
  after_cut(rejoin_.on_erased(error));
}

void Secondary::on_archived(int error) {
  auto failed = rejoin_.on_archived(error);
  if (!failed) return;
  if (failed->of_reset)
    discarding_.end(false, fmt::format("nothing was discarded: the journal cannot be archived ({})",
                                       errno_text(failed->error)));
  refuse(fmt::format("the records after LSN {} cannot be archived ({}), and are not {}", failed->beyond.v,
                     errno_text(failed->error), failed->of_reset ? "discarded" : "cut off"));
}

void Secondary::connected() {
  TL_CHECK(is<Begun>() && rejoin_.steady());
  link_ = Following{std::move(std::get<Begun>(link_).in), {}, {}};
  why_.clear();
  v_.end_split_brain(primary_);
  discarding_.end(
      false, fmt::format("this replica now follows replica {}: no history is left to discard", primary_));
  v_.out.notices.push_back({false,
                            fmt::format("primary {} is connected at {}, epoch {}", primary_,
                                        v_.log.last_mark().lsn.v, epoch_.counter),
                            NoticeKind::connected, primary_, epoch_.counter});
}

// ---- the source fills this replica

void Secondary::handle(SyncBegin& m) {
  if (!is<Matching>() || m.epoch != epoch_ || rejoin_.resets() || rejoin_.archives())
    return refuse("resync offered at the wrong time");
  if (target_.ends()) return refuse(just_ending);
  common_ = std::max(common_,
                     common_history(v_.sb.epochs, v_.log.last_mark().lsn, m.epochs, Lsn{UINT64_MAX}));
  Verdict verdict = judge_resync(v_.history(), {primary_, m.epoch, m.epochs, m.from.lsn});
  if (auto* split = std::get_if<verdict::SplitBrain>(&verdict)) return refuse(std::move(split->why), true);
  TL_CHECK(std::holds_alternative<verdict::Resync>(verdict));
  Offer offer{primary_, m.epoch, m.epochs, m.from.lsn};
  bool in_line = holds_source(v_.history(), offer);
  // Epochs behind that point arrive as records.
  m.epochs.cut_behind(m.from.lsn);
  bool record_held = m.since.lsn < v_.log.tail_mark().lsn || v_.log.find(m.since).has_value();
  bool reaches = !m.whole && content_reaches(v_.history(), offer, m.since.lsn, record_held);
  Rejoin::Reset reset{primary_, m};
  reset.to.whole = !in_line || !reaches;
  rejoin_.reset(std::move(reset));
}

void Secondary::on_reset_durable() {
  auto done = rejoin_.on_reset_durable();
  if (!done) return;
  if (done->gives_up) {
    v_.end_split_brains_but(done->source);  // without a history, no other split brain remains
    why_.clear();
    why_of_ = 0;
    discarding_.finish();
    if (is<Matching>()) answer_match();
    return;
  }
  if (!is<Matching>() || done->source != primary_ || done->to.epoch != epoch_) return;
  begin();
  v_.out.sends.push_back(Send{primary_, SyncReady{epoch_, done->to.from, done->to.whole}});
  connected();
}

template <class Message>
void Secondary::pass_on(Message& message) {
  if (std::string why = target_.take(message); !why.empty()) refuse(std::move(why));
}

void Secondary::handle(const SyncProgress& m) {
  if (m.epoch != epoch_ || !incoming()) return refuse("progress of a resync that had not begun");
  target_.take(m);
}

// ---- buffered links

void Secondary::handle(const Behind& m) {
  if (m.epoch != epoch_ || !incoming()) return refuse("report of a lag at the wrong time");
  v_.behind = BehindReport{m.last, m.durable, m.bytes,
                           std::chrono::milliseconds(std::min(m.milliseconds, std::uint64_t{1} << 50)),
                           v_.now};
}

void Secondary::handle(const KeepFor& m) {
  if (m.epoch != epoch_ || !incoming()) return refuse("records to keep at the wrong time");
  if (v_.far.find(m.of)) keep_[m.of] = m;
}

// The primary knows how far the replica behind a buffered link has come. Without news, this replica keeps
// what it has, up to the bound and an eighth more: its own journal places records a little differently.
void Secondary::keep_for_others() {
  for (FarBuffer& b : v_.far) {
    if (b.of == primary_ && is<Following>()) v_.far.follows(b, v_.log.end(), v_.now);  // it has sent them
    if (auto told = keep_.find(b.of); told != keep_.end()) {
      LogMark durable = told->second.durable;
      auto end = v_.log.find(durable);
      bool still_to_come = !told->second.nothing && !end && durable.lsn > v_.log.last_mark().lsn;
      b.asked = !told->second.nothing;
      if (told->second.nothing && !b.given_up()) v_.far.give_up(b, v_.now);
      if (!told->second.nothing && end) v_.far.follows(b, *end, v_.now);
      // Within the spill, the ends of chunks are exact enough.
      if (const SpillIndex::Held* held = end || told->second.nothing ? nullptr
                                                                     : v_.far.spill().upto(durable.lsn))
        if (!b.given_up()) v_.far.follows(b, held->end(), held->chunk.last, v_.now);
      if (!still_to_come) keep_.erase(told);
    }
    if (!v_.far.far_beyond(b)) continue;
    v_.far.give_up(b, v_.now);
    if (!std::exchange(b.asked, false)) continue;
    v_.out.notices.push_back(
        {true, fmt::format("records for replica {} are not kept here any more: its buffer is full", b.of),
         NoticeKind::buffer_full, b.of});
  }
}

// ---- relays

// True: the message was one between a relay and its neighbour. What has been sent before one of them has
// changed its state is dropped.
bool Secondary::step_relay(ReplicaId from, PeerMessage& message) {
  if (auto* m = std::get_if<RecordMessage>(&message)) {
    if (from == primary_) return false;
    intake_.handle(from, *m, incoming() ? incoming()->bytes : 0);
    take_from_relay();
    return true;
  }
  if (const auto* m = std::get_if<Subscribe>(&message))
    service_.handle(from, *m);
  else if (const auto* taken = std::get_if<Taken>(&message))
    service_.handle(from, *taken);
  else if (const auto* begun = std::get_if<Subscribed>(&message))
    intake_.handle(from, *begun);
  else if (const auto* ended = std::get_if<SubscriptionEnded>(&message))
    service_.ended(from, *ended), intake_.handle(from, *ended);
  else
    return false;
  return true;
}

// The records that were not journaled yet come again, in their place.
void Secondary::handle(const TakeFrom& m) {
  auto* f = std::get_if<Following>(&link_);
  if (m.epoch != epoch_ || !f || target_.fills()) return refuse("change of the relay at the wrong time");
  f->in.records.clear();
  f->in.bytes = 0;
  intake_.begin(primary_, m);
}

void Secondary::handle(RecordMarks& m) {
  if (std::string why = intake_.take(m); !why.empty()) return refuse(std::move(why));
  take_from_relay();
}

void Secondary::take_from_relay() {
  auto* f = std::get_if<Following>(&link_);
  if (!f || v_.failed) return;
  while (auto record = intake_.next()) {
    f->in.bytes += record->meta.size() + record->payload.size();
    f->in.records.push_back(std::move(*record));
  }
  take_backlog();
}

// Without a primary whose records follow those here, neither side of a relay makes sense.
void Secondary::end_relays() {
  if (is<Following>()) return;
  if (intake_.relay() != 0) intake_.end();
  if (!service_.empty()) service_.end_all("it follows no primary now");
}

// ---- records

void Secondary::handle(RecordMessage& m) {
  Incoming* in = incoming();
  if (m.epoch != epoch_ || !in) return refuse("record of another epoch");
  if (intake_.relay() != 0) return refuse("record in place of its mark");
  in->bytes += m.meta.size() + m.payload.size();
  // A primary above this ignores the largest window.
  if (in->bytes > buffered_windows * v_.config.send_window_bytes + 2 * wire_payload_max)
    return refuse(fmt::format("{} MiB of records, more than the send window allows", in->bytes >> 20));
  in->records.push_back(std::move(m));
  take_backlog();
}

void Secondary::take_backlog() {
  auto* f = std::get_if<Following>(&link_);
  if (!f || v_.failed || !rejoin_.steady()) return;
  for (Incoming& in = f->in; !in.records.empty(); in.records.pop_front()) {
    const RecordMessage& m = in.records.front();
    auto taken = take_record(m);
    if (!taken) return refuse(std::move(taken.error()));
    if (!*taken) return;
    in.bytes -= m.meta.size() + m.payload.size();
  }
}

std::expected<bool, std::string> Secondary::take_record(const RecordMessage& m) {
  TL_CHECK(is<Following>() && rejoin_.steady());
  // The check for room comes first, since every event tries a waiting record again.
  std::uint32_t total = meta_blocks_for(m.meta.size()) +
                        static_cast<std::uint32_t>(m.payload.size() / block_size);
  auto pos = v_.log.place(total);
  if (!pos || v_.arena.free() < total || v_.committed.zero_extents() >= v_.arena.size()) {
    checkpointer_.request();
    return false;
  }
  auto body = decode_body_meta(m.meta, v_.sb.volume, v_.sb.volume_blocks);
  if (!body) return std::unexpected(body.error().message);
  if (m.payload.size() != std::size_t{body->header.payload_blocks} * block_size)
    return std::unexpected("record with a payload of the wrong size");
  std::vector<const std::byte*> blocks;
  for (std::size_t at = 0; at < m.payload.size(); at += block_size) blocks.push_back(m.payload.data() + at);
  bool verified = intake_.relay() != 0;  // each record of a relay was
  if (!verified)
    if (auto ok = verify_payload(*body, blocks); !ok) return std::unexpected(ok.error().message);
  LogMark last = v_.log.last_mark();
  if (body->header.first_lsn != last.lsn + 1 || body->header.prev_hash != last.hash)
    return std::unexpected(
        fmt::format("record {} does not follow record {}", body->header.first_lsn.v, last.lsn.v));
  std::vector<Slot> slots;
  slots.reserve(blocks.size());
  for (const std::byte* b : blocks) {
    slots.push_back(v_.arena.take());
    std::memcpy(v_.arena.data(slots.back()), b, block_size);
  }
  if (body->header.type == RecordType::epoch)
    v_.sb.epochs.note(entry_of(body->epoch_change, body->header.first_lsn));
  v_.journal_record(*body, m.meta, std::move(slots), *pos, 0);
  return true;
}

void Secondary::handle(const Commit& m) {
  Incoming* in = incoming();
  if (m.epoch != epoch_ || !in) return refuse("commit point of another epoch");
  if (m.mark.lsn > in->commit.lsn) in->commit = m.mark;
}

void Secondary::handle(const Refuse& m) {
  link_ = Refused{};
  if (rejoin_.gives_up()) drop_resync();  // the winner has refused, so nothing is given up
  note_refusal(fmt::format("replica {} refused: {}", primary_, m.reason), m.split_brain);
  v_.out.notices.push_back({true, fmt::format("primary {} refused: {}", primary_, m.reason),
                            m.split_brain ? NoticeKind::split_brain : NoticeKind::refused, primary_});
  v_.out.closes.push_back({primary_, m.reason});
}

void Secondary::advance() {
  keep_for_others();
  discarding_.advance();
  v_.settle_refill();
  rejoin_.advance();
  take_backlog();
  end_relays();
  intake_.ask();
  service_.advance();
  // Commits only records that are matched with this primary, durable here, and at or below its commit point.
  auto* f = std::get_if<Following>(&link_);
  if (!f || !rejoin_.steady()) return;
  LogMark commit = f->in.commit;
  RecordNo upto = v_.log.end_upto(commit.lsn);
  LogMark ours = v_.log.mark_before(upto);
  bool within_a_record = upto < v_.log.end() && v_.log.at(upto).first <= commit.lsn;
  bool other_hash = ours.lsn == commit.lsn && ours.hash != commit.hash;
  if (commit.lsn.v > 0 && (within_a_record || other_hash)) return refuse("commit point of another history");
  RecordNo end = std::min(upto, v_.log.durable_end());
  v_.commit_upto(end, [](const LogRecord&) {});
  note_covered(end, commit.lsn);
  target_.advance();
}

// Everything up to the primary's commit point was durable on all members of the epoch at that point. A
// replica that has not reached this point may know only an earlier epoch, so it learns nothing.
void Secondary::note_covered(RecordNo end, Lsn primary_commit) {
  Lsn commit = v_.log.mark_before(end).lsn;
  if (commit != primary_commit || end != v_.log.committed_end()) return;
  ReplicaSet set = v_.epoch_at(commit).in_sync | set_of(primary_);
  for (Link& l : v_.links)
    if (set & set_of(l.config.id)) {
      if (FarBuffer* b = v_.far.find(l.config.id)) v_.far.follows(*b, end, v_.now);
      l.covered_end = std::max(l.covered_end, end);
      v_.learn(l);
    }
}

// Flushes of the primary wait for what the protocol promises. The rest of an ack frees windows and the tail.
bool Secondary::is_awaited(const Ack& ack, const Ack& told) const {
  auto peer = std::find_if(v_.config.peers.begin(), v_.config.peers.end(),
                           [&](const PeerConfig& p) { return p.id == primary_; });
  if (peer == v_.config.peers.end() || peer->protocol == Protocol::A) return false;
  return peer->protocol == Protocol::B ? ack.received != told.received : ack.durable != told.durable;
}

// Acks are cumulative, so one ack in each batch of output is enough. An ack that nobody waits for travels
// with another message, or alone soon.
void Secondary::flush_messages() {
  auto* f = std::get_if<Following>(&link_);
  if (!f || v_.failed) return;
  target_.flush_messages();
  service_.send();
  intake_.flush_messages();
  Ack ack{epoch_, v_.log.last_mark().lsn, v_.log.mark_before(v_.log.durable_end())};
  if (ack == f->acked) return;
  bool company = has_message_to(v_.out, primary_);
  if (!f->ack_waits.goes(is_awaited(ack, f->acked), company, v_.now)) return;
  f->acked = ack;
  v_.out.sends.push_back(Send{primary_, ack});
}

std::optional<Instant> Secondary::next_tick() const {
  if (auto at = discarding_.next_tick()) return at;
  auto* f = std::get_if<Following>(&link_);
  if (!f) return std::nullopt;
  std::optional<Instant> next;
  for (auto at : {target_.next_tick(), f->ack_waits.next_tick(), intake_.next_tick()})
    if (at) next = std::min(next.value_or(*at), *at);
  return next;
}

void Secondary::fill_status(VolumeStatus& s) const {
  s.epoch = is<Following>() ? epoch_ : v_.log.epoch_before(v_.log.end());
  s.in_sync = v_.recorded().in_sync;
  s.inconsistent = v_.disk.inconsistent();
  s.discards_for = discarding_.winner();
  ResyncTarget::Progress progress = target_.progress();
  for (const Link& l : v_.links) {
    PeerStatus& to = s.peers.emplace_back();
    to.id = l.config.id;
    to.protocol = l.config.protocol;
    to.connection = l.up ? ConnectionState::Connected : ConnectionState::Connecting;
    if (to.id == primary_) to.connection = connection();
    to.received = v_.log.last_mark().lsn;
    to.durable = v_.log.mark_before(v_.log.durable_end()).lsn;
    to.in_sync = (s.in_sync & set_of(to.id)) != 0;
    to.relays_to = service_.serves(to.id);
    to.takes_from = intake_.takes() && intake_.relay() == to.id;
    to.sync_source = to.id == primary_ && s.inconsistent && is<Following>();
    if (to.sync_source) to.synced_blocks = progress.done, to.sync_total_blocks = progress.total;
    if (to.id != why_of_ || why_.empty()) continue;
    to.connection = ConnectionState::StandAlone;
    to.why = why_;
  }
}

std::vector<Stream> Secondary::streams() const {
  const Link* link = v_.find_link(primary_);
  if (!link || !is<Following>() || !rejoin_.steady()) return {};
  return {{primary_, link->connection, epoch_, true,
           !v_.disk.inconsistent() && link->state && !link->state->inconsistent}};
}

bool Secondary::settled() const {
  auto* f = std::get_if<Following>(&link_);
  auto* b = std::get_if<Begun>(&link_);
  bool taken = (!f || f->in.records.empty()) && (!b || b->in.records.empty());
  return taken && intake_.settled() && rejoin_.steady() && target_.settled();
}

void Secondary::check_invariants() const {
  v_.check_invariants();
  target_.check_invariants();
  rejoin_.check_invariants();
  discarding_.check_invariants();
  TL_CHECK(is<Unconnected>() == (primary_ == 0));
  // Records and content come only from the primary, and together.
  TL_CHECK(!is<Following>() || rejoin_.steady());
  TL_CHECK(!target_.fills() || (!is<Unconnected>() && !is<Matching>()));
  TL_CHECK(!(is<Begun>() || is<Following>() || target_.fills()) || !rejoin_.resets());
  bool comes = is<Begun>() || is<Following>();
  TL_CHECK(!comes || !v_.disk.inconsistent() || target_.fills() || target_.ends());
  if (const auto* refilling = v_.disk.refilling())
    TL_CHECK(v_.log.mark_before(v_.log.durable_end()).lsn < refilling->until);
}

}  // namespace twinloft::repl::core
