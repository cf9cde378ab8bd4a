#include "secondary.h"

#include <algorithm>
#include <cerrno>

#include "twinloft/base/check.h"
#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

namespace {
constexpr unsigned erases_max = 32;  // under way at a time
}

Secondary::Secondary(Volume& volume, Checkpointer& checkpointer) : v_(volume), checkpointer_(checkpointer) {
  epoch_ = v_.log.epoch_before(v_.log.end());
}

void Secondary::submit(const ClientRequest& request) {
  v_.out.completions.push_back({request.id, EROFS});
}

void Secondary::refuse(std::string reason, bool split_brain) {
  if (primary_ == 0) return;
  connection_ = ConnectionState::StandAlone;
  note_refusal(reason, split_brain);
  v_.refuse_link(primary_, reason, split_brain);
}

// Both have been matched by now: what they have in common is known.
void Secondary::note_refusal(const std::string& reason, bool split_brain) {
  why_ = reason;
  why_of_ = primary_;
  if (!split_brain) return;
  v_.note_split_brain(primary_, common_);
  bool stops = discard_ && discard_->winner == primary_ && common_ == Lsn{} && !discard_->force &&
               !giving_up_;
  if (stops) end_discard(false, nothing_in_common(primary_));
}

void Secondary::forget_primary() {
  if (connection_ != ConnectionState::StandAlone) connection_ = ConnectionState::Connecting;
  primary_ = 0;
  begun_ = false;
  backlog_.clear();
  backlog_bytes_ = 0;
  drop_sync();
}

// What has arrived stays; what is missing is not known any more, so the next connection begins anew.
void Secondary::drop_sync() {
  if (cut_ != Cut::resetting) {
    reset_.reset();
    reset_archived_ = giving_up_ = false;
    v_.hold_checkpoint = false;
  }
  sync_flying_.clear();
  sync_durable_ = sync_acked_ = sync_last_ = sync_done_ = sync_total_ = 0;
  sync_until_.reset();
  checks_.clear();
  if (checking_) checking_->stale = true;
}

void Secondary::peer_down(ReplicaId id) {
  if (id != primary_) return;
  if (connection_ == ConnectionState::Connected)
    v_.out.notices.push_back({true, fmt::format("primary {} is lost", id), NoticeKind::disconnected, id});
  forget_primary();
}

void Secondary::peer_state(ReplicaId id, const NodeState& state) {
  if (id != primary_ || state.primary) return;
  v_.out.notices.push_back({false, fmt::format("replica {} is no longer primary", id), NoticeKind::role, id});
  forget_primary();
}

void Secondary::peer_input(ReplicaId id, PeerMessage message) {
  if (auto* request = std::get_if<MatchRequest>(&message)) return match(id, *request);
  if (id != primary_) {
    // What was under way when it ceased to be our primary is of no use; a refusal has to be shown.
    if (auto* m = std::get_if<Refuse>(&message)) v_.out.closes.push_back({id, m->reason});
    return;
  }
  if (connection_ == ConnectionState::StandAlone) return;
  if (v_.failed) return refuse("this node's disk has failed: " + v_.failure);
  std::visit(
      [&](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, MatchState> || std::is_same_v<M, ProbeReply> ||
                      std::is_same_v<M, Ack>)
          refuse(
              "it sent a message that only a secondary sends: no node is primary, or the roles are mixed up");
        else if constexpr (!std::is_same_v<M, MatchRequest> && !std::is_same_v<M, NodeState> &&
                           !std::is_same_v<M, Claim> && !std::is_same_v<M, ClaimReply> &&
                           !std::is_same_v<M, SyncReady> && !std::is_same_v<M, SyncAck> &&
                           !std::is_same_v<M, SyncDiffer> && !std::is_same_v<M, FetchBlock> &&
                           !std::is_same_v<M, FetchedBlock>)
          handle(m);
      },
      message);
}

// Somebody is primary. Another one that is here already gives way to a newer epoch only.
void Secondary::match(ReplicaId id, const MatchRequest& m) {
  if (primary_ != 0 && primary_ != id) {
    if (m.epoch.counter <= epoch_.counter)
      return v_.refuse_link(id, fmt::format("replica {} is primary since epoch {}, which is newer than {}",
                                            primary_, epoch_.counter, m.epoch.counter));
    refuse(fmt::format("replica {} is primary since epoch {}", id, m.epoch.counter));
  }
  if (primary_ != id) forget_primary();
  primary_ = id;
  if (v_.failed) return refuse("this node's disk has failed: " + v_.failure);
  connection_ = ConnectionState::Matching;
  begun_ = false;
  backlog_.clear();
  backlog_bytes_ = 0;
  drop_sync();
  primary_commit_ = {};
  common_ = {};
  epoch_ = m.epoch;
  if (discard_ && id == discard_->winner && may_give_up()) return begin_discard(m);
  answer_match();
}

void Secondary::answer_match() {
  Epoch seen = v_.log.epoch_before(v_.log.end());
  v_.out.sends.push_back(
      Send{primary_, MatchState{seen, v_.log.tail_mark(), v_.log.last_mark(), v_.commit_lsn()}});
}

// A tail that has moved since the primary heard of it leaves records without a name: the primary searches
// again above it.
void Secondary::handle(const Probe& m) {
  if (connection_ == ConnectionState::Matching && m.mark.lsn < v_.log.tail_mark().lsn) return answer_match();
  bool found = v_.log.find(m.mark).has_value();
  if (found) common_ = std::max(common_, m.mark.lsn);
  v_.out.sends.push_back(Send{primary_, ProbeReply{m.mark, found}});
}

void Secondary::handle(const Begin& m) {
  if (connection_ != ConnectionState::Matching || m.epoch != epoch_ || begun_)
    return refuse("it began to send without a common record");
  if (cut_ == Cut::resetting) return refuse("this replica is just giving up its log for a resync");
  if (v_.disk.finishing()) return refuse(just_ending);
  Epoch seen = v_.log.epoch_before(v_.log.end());
  if (m.epoch.counter < seen.counter || (m.epoch.counter == seen.counter && m.epoch.id != seen.id))
    return refuse(
        fmt::format("it is at epoch {}, and epoch {} has been here already", m.epoch.counter, seen.counter));
  auto common = v_.log.find(m.from);
  if (!common)
    return refuse(fmt::format("it wants to go on from {}, which is not in the log here", m.from.lsn.v));
  common_ = std::max(common_, m.from.lsn);
  Verdict verdict = judge_records(v_.history(), {primary_, m.epoch, m.epochs, m.from.lsn});
  if (auto* split = std::get_if<verdict::SplitBrain>(&verdict)) return refuse(std::move(split->why), true);
  if (std::holds_alternative<verdict::Resync>(verdict))
    return refuse(
        fmt::format("it wants to go on from {}, and {} is committed here", m.from.lsn.v, v_.commit_lsn().v));
  if (std::string why = note_source(m); !why.empty()) return refuse(std::move(why));
  begun_ = true;
  cut_to_ = m.from;
  cut_for_ = m.epochs.empty() ? EpochEntry{} : m.epochs.back();
  bool lost = m.holds > m.from.lsn;
  if (lost) {  // durable before the first of those records is taken
    auto of = std::find_if(m.epochs.rbegin(), m.epochs.rend(),
                           [&](const EpochEntry& e) { return e.start <= m.holds; });
    v_.disk.note_refill(m.holds, epoch_, of == m.epochs.rend() ? epoch_ : of->epoch);
  }
  // A cut for somebody else says nothing of the records that come now.
  bool other_cut = v_.ends_in_a_cut() && !m.epochs.holds(v_.sb.cut_for.epoch);
  if (*common == v_.log.end() && cut_ == Cut::none && !lost && !other_cut) return connected();
  if (cut_ == Cut::archiving) return;  // goes on when that has ended
  cut_ = Cut::waiting_for_journal;
  try_cut();
}

// A journal write still under way could land on top of what comes in its place; one that has failed is not
// there to be archived.
void Secondary::try_cut() {
  if (cut_ != Cut::waiting_for_journal || v_.journal_in_flight > 0 || v_.failed) return;
  auto common = v_.log.find(cut_to_);
  TL_CHECK(common.has_value());
  if (*common == v_.log.end()) return finish_cut();
  const LogRecord& last = v_.log.at(v_.log.end() - 1);
  ArchiveTail archive{
      make_token(TokenKind::archive, 0), v_.log.at(*common).first, last.mark.lsn, last.epoch, {}};
  for (RecordNo no = *common; no < v_.log.end(); ++no)
    archive.parts.push_back({v_.journal_offset(v_.log.at(no).pos), v_.log.at(no).total_blocks * block_size});
  archived_from_ = archive.first;
  cut_ = Cut::archiving;
  v_.out.archives.push_back(std::move(archive));
}

// A later Begin may have named another point meanwhile: more is archived then, if need be.
void Secondary::on_archived(int error) {
  TL_CHECK(cut_ == Cut::archiving);
  if (std::exchange(archiving_for_reset_, false)) return on_reset_archived(error);
  cut_ = Cut::waiting_for_journal;
  if (error != 0) {
    begun_ = false;
    cut_ = Cut::erasing;  // what an earlier cut has left to be erased
    erase_cut();
    return refuse(
        fmt::format("the records beyond {} cannot be archived ({}), and are not cut off without that",
                    cut_to_.lsn.v, errno_text(error)));
  }
  if (cut_to_.lsn + 1 < archived_from_) return try_cut();
  finish_cut();
}

void Secondary::finish_cut() {
  auto common = v_.log.find(cut_to_);
  TL_CHECK(common.has_value());
  if (*common < v_.log.end())
    v_.out.notices.push_back({false,
                              fmt::format("records {} to {} are not in the primary's history and are cut off",
                                          cut_to_.lsn.v + 1, v_.log.last_mark().lsn.v),
                              NoticeKind::tail_cut, primary_});
  for (RecordNo no = *common; no < v_.log.end(); ++no) {
    v_.release_memory(v_.log.at(no));
    cut_records_.push_back(v_.log.at(no).pos);
  }
  v_.log.cut(*common);
  v_.sb.epochs.cut_behind(cut_to_.lsn);
  v_.sb.cut_for = cut_for_;
  v_.sb.incarnation++;
  v_.sb.cut_lsn = cut_to_.lsn;
  v_.sb.cut_incarnation = v_.sb.incarnation;
  cut_ = Cut::waiting_for_superblock;
  v_.write_superblock(Volume::for_cut);
}

void Secondary::on_cut_durable() {
  if (cut_ != Cut::waiting_for_superblock) return;
  cut_ = Cut::erasing;
  erase_cut();
}

// The superblock tells of the last cut only, and every start is one. By then nothing of this cut may be there
// that could count as the log: a record in its place need not lie where the first cut one does, if it does
// not fit before the ring's end.
void Secondary::erase_cut() {
  if (v_.failed) return;
  alignas(block_size) static std::byte zeros[block_size];
  for (; erasing_ < erases_max && !cut_records_.empty();
       cut_records_.pop_back(), ++erasing_, ++v_.journal_in_flight)
    v_.out.journal_writes.push_back(
        {make_token(TokenKind::erase, 0), v_.journal_offset(cut_records_.back()), {{zeros, block_size}}});
  if (erasing_ > 0) return;
  cut_ = Cut::none;
  if (connection_ == ConnectionState::Matching && begun_ && cut_to_ == v_.log.last_mark()) connected();
}

void Secondary::on_erased(int error) {
  TL_CHECK(erasing_ > 0 && v_.journal_in_flight > 0);
  --erasing_;
  --v_.journal_in_flight;
  if (error != 0) return v_.fail_device(fmt::format("the journal failed a write ({})", errno_text(error)));
  if (cut_ == Cut::erasing) erase_cut();
}

void Secondary::connected() {
  connection_ = ConnectionState::Connected;
  why_.clear();
  v_.end_split_brain(primary_);
  end_discard(false, fmt::format("replica {} is followed now: there is no history of its own to be given up",
                                 primary_));
  acked_ = {};
  v_.out.notices.push_back({false,
                            fmt::format("primary {} is connected at {}, epoch {}", primary_,
                                        v_.log.last_mark().lsn.v, epoch_.counter),
                            NoticeKind::connected, primary_, epoch_.counter});
}

void Secondary::handle(RecordMessage& m) {
  if (m.epoch != epoch_ || !begun_) return refuse("it sent a record of another epoch");
  backlog_bytes_ += m.meta.size() + m.payload.size();
  // Its window may be another one than ours; far beyond it, it has none.
  if (backlog_bytes_ > 4 * v_.config.send_window_bytes + wire_payload_max)
    return refuse(fmt::format("it sent {} MiB of records that nobody had room for", backlog_bytes_ >> 20));
  backlog_.push_back(std::move(m));
  take_backlog();
}

void Secondary::take_backlog() {
  if (v_.failed) return;
  while (connection_ == ConnectionState::Connected && cut_ == Cut::none && !backlog_.empty()) {
    std::size_t bytes = backlog_.front().meta.size() + backlog_.front().payload.size();
    if (!take_record(backlog_.front())) return;
    if (backlog_.empty()) return;  // refused
    backlog_bytes_ -= bytes;
    backlog_.pop_front();
  }
}

bool Secondary::take_record(RecordMessage& m) {
  // Room first: a record that has to wait is looked at again with every event.
  std::uint32_t total = meta_blocks_for(m.meta.size()) +
                        static_cast<std::uint32_t>(m.payload.size() / block_size);
  auto pos = v_.log.place(total);
  if (!pos || v_.arena.free() < total || v_.committed.zero_extents() >= v_.arena.size()) {
    checkpointer_.request();
    return false;
  }
  auto body = decode_body_meta(m.meta, v_.sb.volume, v_.sb.volume_blocks);
  if (!body) {
    refuse(body.error().message);
    return true;
  }
  if (m.payload.size() != std::size_t{body->header.payload_blocks} * block_size) {
    refuse("it sent a record without all of its payload");
    return true;
  }
  std::vector<const std::byte*> blocks;
  for (std::size_t at = 0; at < m.payload.size(); at += block_size) blocks.push_back(m.payload.data() + at);
  if (auto ok = verify_payload(*body, blocks); !ok) {
    refuse(ok.error().message);
    return true;
  }
  LogMark last = v_.log.last_mark();
  if (body->header.first_lsn != last.lsn + 1 || body->header.prev_hash != last.hash) {
    refuse(fmt::format("its record {} does not follow {}", body->header.first_lsn.v, last.lsn.v));
    return true;
  }
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
  if (m.epoch != epoch_ || !begun_) return refuse("it sent a commit point of another epoch");
  if (m.mark.lsn > primary_commit_.lsn) primary_commit_ = m.mark;
}

void Secondary::handle(const Refuse& m) {
  connection_ = ConnectionState::StandAlone;
  if (giving_up_) drop_sync();  // not for one that does not want it
  note_refusal("it refused: " + m.reason, m.split_brain);
  v_.out.notices.push_back({true, fmt::format("primary {} refused: {}", primary_, m.reason),
                            m.split_brain ? NoticeKind::split_brain : NoticeKind::refused, primary_});
  v_.out.closes.push_back({primary_, m.reason});
}

void Secondary::advance() {
  bound_discard();
  v_.settle_refill();
  try_cut();
  try_reset();
  take_backlog();
  // Only what was matched with the primary of this epoch, is durable here, and is at or below its commit
  // point.
  if (connection_ != ConnectionState::Connected || cut_ != Cut::none) return;
  RecordNo upto = v_.log.end_upto(primary_commit_.lsn);
  LogMark ours = v_.log.mark_before(upto);
  bool within_a_record = upto < v_.log.end() && v_.log.at(upto).first <= primary_commit_.lsn;
  bool other_hash = ours.lsn == primary_commit_.lsn && ours.hash != primary_commit_.hash;
  if (primary_commit_.lsn.v > 0 && (within_a_record || other_hash))
    return refuse("its commit point names another history");
  RecordNo end = std::min(upto, v_.log.durable_end());
  v_.commit_upto(end, [](const LogRecord&) {});
  note_covered(end);
  start_check();
  advance_sync();
}

// Everything up to the primary's commit point was durable on all members of the epoch that this point lies
// in. Where this replica is short of it, the epoch that it sees last may be an earlier one.
void Secondary::note_covered(RecordNo end) {
  Lsn commit = v_.log.mark_before(end).lsn;
  if (commit != primary_commit_.lsn || end != v_.log.committed_end()) return;
  ReplicaSet set = v_.epoch_at(commit).in_sync | set_of(primary_);
  for (Link& l : v_.links)
    if (set & set_of(l.config.id)) {
      l.covered_end = std::max(l.covered_end, end);
      v_.learn(l);
    }
}

// Acks are cumulative: one a batch of output.
void Secondary::flush_messages() {
  flush_sync_acks();
  if (connection_ != ConnectionState::Connected || v_.failed) return;
  Ack ack{epoch_, v_.log.last_mark().lsn, v_.log.mark_before(v_.log.durable_end())};
  if (ack == acked_) return;
  acked_ = ack;
  v_.out.sends.push_back(Send{primary_, ack});
}

// A round of the checkpointer may take longer than the source waits: the same acknowledgement again says that
// the disk goes on, then.
std::optional<Instant> Secondary::tell_at() const {
  bool goes_on = connection_ == ConnectionState::Connected && !v_.failed && v_.disk.inconsistent() &&
                 sync_last_ > 0 && checkpointer_.steps_done() != told_steps_;
  if (!goes_on) return std::nullopt;
  return told_at_ + v_.config.slow_peer / 4;
}

void Secondary::flush_sync_acks() {
  if (connection_ != ConnectionState::Connected || v_.failed) return;
  auto due = tell_at();
  if (sync_durable_ == sync_acked_ && !(due && v_.now >= *due)) return;
  sync_acked_ = sync_durable_;
  told_at_ = v_.now;
  told_steps_ = checkpointer_.steps_done();
  v_.out.sends.push_back(Send{primary_, SyncAck{epoch_, sync_acked_}});
}

void Secondary::fill_status(VolumeStatus& s) const {
  s.epoch = connection_ == ConnectionState::Connected ? epoch_ : v_.log.epoch_before(v_.log.end());
  s.in_sync = v_.recorded().in_sync;
  s.inconsistent = v_.disk.inconsistent();
  if (discard_) s.discards_for = discard_->winner;
  for (const Link& l : v_.links) {
    PeerStatus& to = s.peers.emplace_back();
    to.id = l.config.id;
    to.protocol = l.config.protocol;
    to.connection = l.up ? ConnectionState::Connected : ConnectionState::Connecting;
    if (to.id == primary_) to.connection = connection_;
    to.received = v_.log.last_mark().lsn;
    to.durable = v_.log.mark_before(v_.log.durable_end()).lsn;
    to.in_sync = (s.in_sync & set_of(to.id)) != 0;
    to.sync_source = to.id == primary_ && s.inconsistent && connection_ == ConnectionState::Connected;
    if (to.sync_source) to.synced_blocks = sync_done_, to.sync_total_blocks = sync_total_;
    if (to.id != why_of_ || why_.empty()) continue;
    to.connection = ConnectionState::StandAlone;
    to.why = why_;
  }
}

std::vector<Stream> Secondary::streams() const {
  const Link* link = v_.find_link(primary_);
  if (!link || connection_ != ConnectionState::Connected || cut_ != Cut::none) return {};
  return {{primary_, link->connection, epoch_, true,
           !v_.disk.inconsistent() && link->state && !link->state->inconsistent}};
}

bool Secondary::settled() const {
  return backlog_.empty() && cut_ == Cut::none && !reset_ && !clearing_ && !checking_;
}

}  // namespace twinloft::repl::core
