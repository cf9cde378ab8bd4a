#include "secondary.h"

#include <algorithm>
#include <cerrno>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

Secondary::Secondary(Volume& volume, Checkpointer& checkpointer) : v_(volume), checkpointer_(checkpointer) {
  epoch_ = v_.log.epoch_before(v_.log.end());
}

void Secondary::submit(const ClientRequest& request) { v_.out.completions.push_back({request.id, EROFS}); }

void Secondary::refuse(std::string reason) {
  if (primary_ == 0) return;
  connection_ = ConnectionState::StandAlone;
  why_ = reason;
  v_.out.notices.push_back({true, fmt::format("primary {}: {}", primary_, reason)});
  v_.out.sends.push_back(Send{primary_, Refuse{reason}});
  v_.out.closes.push_back({primary_, std::move(reason)});
}

void Secondary::peer_up(ReplicaId id) {
  bool known = std::any_of(v_.config.peers.begin(), v_.config.peers.end(), [&](const auto& p) { return p.id == id; });
  if (!known || (primary_ != 0 && primary_ != id)) {
    v_.out.closes.push_back({id, known ? "another primary is connected" : "not a peer of this volume"});
    return;
  }
  primary_ = id;
  connection_ = ConnectionState::Matching;
  begun_ = false;
  backlog_.clear();
  primary_commit_ = {};
}

void Secondary::peer_down(ReplicaId id) {
  if (id != primary_) return;
  if (connection_ == ConnectionState::Connected) v_.out.notices.push_back({true, fmt::format("primary {} is lost", id)});
  if (connection_ != ConnectionState::StandAlone) connection_ = ConnectionState::Connecting;
  primary_ = 0;
  backlog_.clear();
}

void Secondary::peer_input(ReplicaId id, PeerMessage message) {
  if (id != primary_ || connection_ == ConnectionState::StandAlone) return;
  if (v_.failed) return refuse("this node's disk has failed: " + v_.failure);
  std::visit(
      [&](auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, MatchState> || std::is_same_v<M, ProbeReply> || std::is_same_v<M, Ack>)
          refuse("it sent a message that only a secondary sends: no node is primary, or the roles are mixed up");
        else
          handle(m);
      },
      message);
}

void Secondary::handle(const MatchRequest& m) {
  Epoch seen = v_.log.epoch_before(v_.log.end());
  connection_ = ConnectionState::Matching;
  begun_ = false;
  epoch_ = m.epoch;
  v_.out.sends.push_back(
      Send{primary_, MatchState{seen, v_.log.tail_mark(), v_.log.last_mark(), v_.commit_lsn()}});
}

void Secondary::handle(const Probe& m) {
  v_.out.sends.push_back(Send{primary_, ProbeReply{m.mark, v_.log.find(m.mark).has_value()}});
}

void Secondary::handle(const Begin& m) {
  if (connection_ != ConnectionState::Matching || m.epoch != epoch_ || begun_)
    return refuse("it began to send without a common record");
  Epoch seen = v_.log.epoch_before(v_.log.end());
  if (m.epoch.counter < seen.counter || (m.epoch.counter == seen.counter && m.epoch.id != seen.id))
    return refuse(fmt::format("it is at epoch {}, and epoch {} has been here already", m.epoch.counter, seen.counter));
  auto common = v_.log.find(m.from);
  if (!common) return refuse(fmt::format("it wants to go on from {}, which is not in the log here", m.from.lsn.v));
  if (*common < v_.log.committed_end())
    return refuse(fmt::format("it wants to cut off committed writes: {} are committed here, it has {}",
                              v_.commit_lsn().v, m.from.lsn.v));
  begun_ = true;
  cut_to_ = m.from;
  if (*common == v_.log.end() && cut_ == Cut::none) return connected();
  cut_ = Cut::waiting_for_journal;
  try_cut();
}

// A journal write still under way could land on top of what comes in its place.
void Secondary::try_cut() {
  if (cut_ != Cut::waiting_for_journal || v_.journal_in_flight > 0) return;
  auto common = v_.log.find(cut_to_);
  TL_CHECK(common.has_value());
  if (*common < v_.log.end())
    v_.out.notices.push_back({false, fmt::format("records {} to {} are not in the primary's history and are cut off",
                                                 cut_to_.lsn.v + 1, v_.log.last_mark().lsn.v)});
  for (RecordNo no = *common; no < v_.log.end(); ++no) v_.release_memory(v_.log.at(no));
  v_.log.cut(*common);
  std::erase_if(v_.sb.epochs, [&](const EpochEntry& e) { return e.start > cut_to_.lsn; });
  v_.sb.incarnation++;
  v_.sb.cut_lsn = cut_to_.lsn;
  v_.sb.cut_incarnation = v_.sb.incarnation;
  cut_ = Cut::waiting_for_superblock;
  v_.write_superblock(Volume::for_cut);
}

void Secondary::on_cut_durable() {
  if (cut_ != Cut::waiting_for_superblock) return;
  cut_ = Cut::none;
  if (connection_ == ConnectionState::Matching && begun_ && cut_to_ == v_.log.last_mark()) connected();
}

void Secondary::connected() {
  connection_ = ConnectionState::Connected;
  why_.clear();
  acked_ = {};
  v_.out.notices.push_back({false, fmt::format("primary {} is connected at {}, epoch {}", primary_,
                                               v_.log.last_mark().lsn.v, epoch_.counter)});
}

void Secondary::handle(RecordMessage& m) {
  if (m.epoch != epoch_ || !begun_)
    return refuse("it sent a record of another epoch");
  backlog_.push_back(std::move(m));
  take_backlog();
}

void Secondary::take_backlog() {
  while (connection_ == ConnectionState::Connected && cut_ == Cut::none && !backlog_.empty()) {
    if (!take_record(backlog_.front())) return;
    if (backlog_.empty()) return;  // refused
    backlog_.pop_front();
  }
}

bool Secondary::take_record(RecordMessage& m) {
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
  std::uint32_t total = meta_blocks_for(m.meta.size()) + body->header.payload_blocks;
  auto pos = v_.log.place(total);
  if (!pos || v_.arena.free() < total) {
    checkpointer_.request();
    return false;
  }
  std::vector<Slot> slots;
  slots.reserve(blocks.size());
  for (const std::byte* b : blocks) {
    slots.push_back(v_.arena.take());
    std::memcpy(v_.arena.data(slots.back()), b, block_size);
  }
  if (body->header.type == RecordType::epoch) {
    auto& epochs = v_.sb.epochs;
    if (epochs.size() == superblock_epochs_max) epochs.erase(epochs.begin());
    epochs.push_back({body->epoch_change.epoch, body->header.first_lsn, body->epoch_change.writer,
                      body->epoch_change.in_sync});
  }
  v_.journal_record(*body, m.meta, std::move(slots), *pos, 0);
  return true;
}

void Secondary::handle(const Commit& m) {
  if (m.epoch != epoch_ || !begun_)
    return refuse("it sent a commit point of another epoch");
  if (m.mark.lsn > primary_commit_.lsn) primary_commit_ = m.mark;
}

void Secondary::handle(const Refuse& m) {
  connection_ = ConnectionState::StandAlone;
  why_ = "it refused: " + m.reason;
  v_.out.notices.push_back({true, fmt::format("primary {} refused: {}", primary_, m.reason)});
  v_.out.closes.push_back({primary_, m.reason});
}

void Secondary::advance() {
  try_cut();
  take_backlog();
  // Only what was matched with the primary of this epoch, is durable here, and is at or below its commit point.
  if (connection_ != ConnectionState::Connected || cut_ != Cut::none) return;
  RecordNo upto = v_.log.end_upto(primary_commit_.lsn);
  LogMark ours = v_.log.mark_before(upto);
  bool within_a_record = upto < v_.log.end() && v_.log.at(upto).first <= primary_commit_.lsn;
  bool other_hash = ours.lsn == primary_commit_.lsn && ours.hash != primary_commit_.hash;
  if (primary_commit_.lsn.v > 0 && (within_a_record || other_hash))
    return refuse("its commit point names another history");
  RecordNo end = std::min(upto, v_.log.durable_end());
  v_.commit_upto(end, [](const LogRecord&) {});
}

// Acks are cumulative: one a batch of output.
void Secondary::flush_messages() {
  if (connection_ != ConnectionState::Connected || v_.failed) return;
  Ack ack{epoch_, v_.log.last_mark().lsn, v_.log.mark_before(v_.log.durable_end())};
  if (ack == acked_) return;
  acked_ = ack;
  v_.out.sends.push_back(Send{primary_, ack});
}

void Secondary::fill_status(VolumeStatus& s) const {
  s.epoch = epoch_;
  for (const PeerConfig& p : v_.config.peers)
    s.peers.push_back({p.id, p.protocol, p.id == primary_ || primary_ == 0 ? connection_ : ConnectionState::Connecting,
                       {}, v_.log.last_mark().lsn, v_.log.mark_before(v_.log.durable_end()).lsn, why_});
}

bool Secondary::settled() const { return backlog_.empty() && cut_ == Cut::none; }

}  // namespace twinloft::repl::core
