#include "relay_intake.h"

#include <utility>

#include "peer_links.h"

namespace twinloft::repl::core {

void RelayIntake::end() {
  leave_relay();
  phase_ = Phase::none;
  relay_ = 0;
  marks_.clear();
  bodies_.clear();
  bytes_ = 0;
  taken_waits_ = {};
}

// So that it sends and keeps nothing more for this replica.
void RelayIntake::leave_relay() {
  if (phase_ != Phase::asked && phase_ != Phase::taking) return;
  v_.out.sends.push_back(Send{relay_, SubscriptionEnded{epoch_, seq_, ""}});
}

void RelayIntake::begin(ReplicaId primary, const TakeFrom& m) {
  end();
  primary_ = primary;
  epoch_ = m.epoch;
  seq_ = m.seq;
  v_.out.sends.push_back(Send{primary_, TakeAfter{epoch_, seq_, v_.log.last_mark()}});
  if (m.relay == 0) return;
  relay_ = m.relay;
  phase_ = Phase::waiting;
  wait_until_ = v_.now + connect_patience;
  const Link* link = v_.find_link(relay_);
  if (!link || relay_ == primary_) return lose(fmt::format("it is no peer of replica {}", v_.sb.replica));
  ask();
}

void RelayIntake::ask() {
  if (phase_ != Phase::waiting) return;
  const Link* link = v_.find_link(relay_);
  if (!link->up) {
    if (v_.now >= wait_until_) lose(fmt::format("replica {} is not connected to it", v_.sb.replica));
    return;
  }
  if (!link->knows_relays) return lose("it runs a release without relays");
  phase_ = Phase::asked;
  v_.out.sends.push_back(Send{relay_, Subscribe{epoch_, seq_, v_.log.last_mark()}});
}

void RelayIntake::lose(const std::string& why) {
  leave_relay();
  phase_ = Phase::lost;
  bodies_.clear();
  bytes_ = 0;
  v_.out.sends.push_back(Send{primary_, RelayLost{epoch_, seq_, why}});
}

std::string RelayIntake::take(RecordMarks& m) {
  if (relay_ == 0 || m.epoch != epoch_ || m.seq != seq_) return "marks of records at the wrong time";
  marks_.insert(marks_.end(), m.marks.begin(), m.marks.end());
  return marks_.size() > marks_window ? "more marks of records than a primary sends" : "";
}

bool RelayIntake::is_present(ReplicaId from, const Epoch& epoch, std::uint64_t seq) const {
  return from == relay_ && epoch == epoch_ && seq == seq_ &&
         (phase_ == Phase::asked || phase_ == Phase::taking);
}

void RelayIntake::handle(ReplicaId from, const Subscribed& m) {
  if (!is_present(from, m.epoch, m.seq)) return;  // of an earlier question
  if (phase_ == Phase::taking) return lose("it has begun twice");
  phase_ = Phase::taking;
  told_ = {};
}

void RelayIntake::handle(ReplicaId from, const SubscriptionEnded& m) {
  if (!is_present(from, m.epoch, m.seq)) return;
  phase_ = Phase::waiting;  // there is nothing to end
  lose(m.why);
}

// Until the answer to the present question, records of an earlier one may arrive.
void RelayIntake::handle(ReplicaId from, RecordMessage& m, std::uint64_t held) {
  if (from != relay_ || phase_ != Phase::taking) return;
  bytes_ += m.meta.size() + m.payload.size();
  bodies_.push_back(std::move(m));
  if (bytes_ + held > v_.config.send_window_bytes + 2 * wire_payload_max)
    lose("it sends more than the send window");
}

void RelayIntake::peer_down(ReplicaId id) {
  if (id != relay_ || (phase_ != Phase::asked && phase_ != Phase::taking)) return;
  phase_ = Phase::waiting;
  lose("the connection to it is lost");
}

std::string RelayIntake::why_not(const RecordMessage& m, const LogMark& mark) const {
  auto body = decode_body_meta(m.meta, v_.sb.volume, v_.sb.volume_blocks);
  if (!body || body->mark() != mark) return "it has sent another record than the primary";
  std::vector<const std::byte*> blocks;
  for (std::size_t at = 0; at < m.payload.size(); at += block_size) blocks.push_back(m.payload.data() + at);
  bool whole = m.payload.size() == std::size_t{body->header.payload_blocks} * block_size;
  return whole && verify_payload(*body, blocks) ? "" : "it has sent a record with other content";
}

std::optional<RecordMessage> RelayIntake::next() {
  if (phase_ != Phase::taking || marks_.empty() || bodies_.empty()) return std::nullopt;
  RecordMessage m = std::move(bodies_.front());
  bodies_.pop_front();
  bytes_ -= m.meta.size() + m.payload.size();
  if (std::string why = why_not(m, marks_.front()); !why.empty()) {
    lose(why);
    return std::nullopt;
  }
  marks_.pop_front();
  m.epoch = epoch_;
  return m;
}

void RelayIntake::flush_messages() {
  if (phase_ != Phase::taking) return;
  Taken taken{epoch_, seq_, v_.log.last_mark().lsn, v_.log.mark_before(v_.log.durable_end()).lsn};
  if (taken == told_ || !taken_waits_.goes(false, has_message_to(v_.out, relay_), v_.now)) return;
  told_ = taken;
  v_.out.sends.push_back(Send{relay_, taken});
}

}  // namespace twinloft::repl::core
