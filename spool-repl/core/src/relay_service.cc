#include "relay_service.h"

#include <algorithm>
#include <utility>

#include "twinloft/base/errno_text.h"

namespace twinloft::repl::core {

RelayService::~RelayService() {
  for (const auto& [of, n] : neighbours_) tell_memory(of, 0);
}

void RelayService::tell_memory(ReplicaId of, std::uint64_t bytes) const {
  if (v_.config.link_memory) v_.config.link_memory->holds(of, bytes);
}

void RelayService::handle(ReplicaId from, const Subscribe& m) {
  Neighbour next{.epoch = m.epoch, .seq = m.seq, .after = m.after};
  if (auto before = neighbours_.find(from); before != neighbours_.end()) {
    const Neighbour& old = before->second;
    if (old.epoch == m.epoch && m.seq <= old.seq) return;  // numbers ascend
    next.read = old.read, next.read_bytes = old.read_bytes;
    next.read_is_stale = next.read != 0;
  }
  tell_memory(from, next.held());
  neighbours_[from] = std::move(next);
}

// What the neighbour says bounds what is sent to it, and how far the tail may move. Nothing else rests on it.
void RelayService::handle(ReplicaId from, const Taken& m) {
  auto it = neighbours_.find(from);
  if (it == neighbours_.end() || it->second.seq != m.seq || it->second.epoch != m.epoch) return;
  Neighbour& n = it->second;
  RecordNo received = std::min(v_.log.end_upto(m.received), n.next);
  for (; !n.flying.empty() && n.flying.front().end <= received; n.flying.pop_front())
    n.flying_bytes -= n.flying.front().bytes;
  n.durable_end = std::max(n.durable_end, std::min(v_.log.end_upto(m.durable), n.next));
  tell_memory(from, n.held());
}

void RelayService::ended(ReplicaId of, const SubscriptionEnded& m) {
  auto it = neighbours_.find(of);
  if (it != neighbours_.end() && it->second.seq == m.seq && it->second.epoch == m.epoch) ended(of);
}

void RelayService::ended(ReplicaId of) {
  if (neighbours_.erase(of) > 0) tell_memory(of, 0);
}

void RelayService::end(ReplicaId of, const std::string& why) {
  auto it = neighbours_.find(of);
  v_.out.sends.push_back(Send{of, SubscriptionEnded{it->second.epoch, it->second.seq, why}});
  ended(of);
}

void RelayService::end_all(const char* why) {
  while (!neighbours_.empty()) end(neighbours_.begin()->first, why);
}

// A neighbour that connects again within a short time finds what it lacks.
void RelayService::advance() {
  RecordNo limit = UINT64_MAX;
  if (neighbours_.empty()) {
    v_.tail_limit = limit;
    return;
  }
  bool room = v_.log.used_bytes() < v_.log.ring_bytes() / 2 && v_.log.place(record_blocks_max);
  if (room)
    for (const auto& [of, n] : neighbours_)
      if (n.begun) limit = std::min(limit, std::max(n.durable_end, v_.log.first()));
  v_.tail_limit = limit;
}

void RelayService::send() {
  std::vector<std::pair<ReplicaId, std::string>> over;
  for (auto& [of, n] : neighbours_)
    if (std::string why = send_to(of, n); !why.empty()) over.emplace_back(of, std::move(why));
  for (const auto& [of, why] : over) end(of, why);
}

std::string RelayService::send_to(ReplicaId of, Neighbour& n) {
  if (!n.begun) {
    auto after = v_.log.find(n.after);
    if (!after && n.after.lsn > v_.log.last_mark().lsn) return "";  // the record comes later
    if (!after)
      return fmt::format("replica {} does not keep what follows LSN {}", v_.sb.replica, n.after.lsn.v);
    n.begun = true;
    n.next = n.durable_end = *after;
    v_.out.sends.push_back(Send{of, Subscribed{n.epoch, n.seq}});
  }
  while (n.read == 0 && n.next < v_.log.end()) {
    if (n.next < v_.log.first())
      return fmt::format("replica {} does not keep the next record any more", v_.sb.replica);
    const LogRecord& r = v_.log.at(n.next);
    std::uint64_t bytes = std::uint64_t{r.total_blocks} * block_size;
    if (!has_room(of, n, bytes)) break;
    if (r.in_memory()) {
      v_.out.sends.push_back(v_.record_message(of, n.epoch, r));
      note_sent(n, r);
      continue;
    }
    n.read = ++v_.relay_reads;
    n.read_bytes = bytes;
    v_.out.journal_reads.push_back(
        {make_token(TokenKind::relay_read, n.read), v_.journal_offset(r.pos), r.total_blocks * block_size});
  }
  return "";
}

bool RelayService::has_room(ReplicaId of, const Neighbour& n, std::uint64_t bytes) const {
  if (n.flying_bytes > v_.config.send_window_bytes) return false;
  LinkMemory* memory = v_.config.link_memory.get();
  return !memory || memory->takes(of, bytes, LinkMemory::For::records);
}

void RelayService::note_sent(Neighbour& n, const LogRecord& r) {
  std::uint64_t bytes = std::uint64_t{r.total_blocks} * block_size;
  n.flying.push_back({++n.next, bytes});
  n.flying_bytes += bytes;
}

void RelayService::on_journal_read(std::uint64_t number, int error, std::vector<std::byte> bytes) {
  auto it = std::find_if(neighbours_.begin(), neighbours_.end(),
                         [&](const auto& each) { return each.second.read == number; });
  if (it == neighbours_.end()) return;
  auto& [of, n] = *it;
  n.read = n.read_bytes = 0;
  bool stale = std::exchange(n.read_is_stale, false);
  if (stale) return tell_memory(of, n.held());
  if (n.next < v_.log.first()) return;  // send() ends it
  if (error != 0)
    return end(
        of, fmt::format("the journal of replica {} cannot be read ({})", v_.sb.replica, errno_text(error)));
  auto stored = decode_stored_record(bytes, v_.sb.volume, v_.sb.volume_blocks);
  const LogRecord& r = v_.log.at(n.next);
  if (!stored || stored->body.mark() != r.mark)
    return end(of, fmt::format("the journal of replica {} is damaged", v_.sb.replica));
  RecordMessage message{
      n.epoch, {stored->meta.begin(), stored->meta.end()}, {stored->payload.begin(), stored->payload.end()}};
  v_.out.sends.push_back(Send{of, std::move(message)});
  note_sent(n, r);  // the read holds its memory already
}

}  // namespace twinloft::repl::core
