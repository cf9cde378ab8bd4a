#include "repair.h"

#include <algorithm>
#include <array>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

namespace {
constexpr std::size_t later_max = 1024;
constexpr Duration later_by = std::chrono::milliseconds(20);
constexpr Duration news_every = std::chrono::seconds(10);  // repairs in between share one notice
constexpr std::uint64_t repaired_serial = 0;               // compares as older than all records
}  // namespace

Repair::Ticket Repair::begin(std::vector<Lba> blocks) {
  Ticket ticket = ++last_ticket_;
  jobs_.emplace(ticket, Job{std::move(blocks)});
  return ticket;
}

void Repair::begin_later(Lba block) {
  bool known = blocks_.contains(block) ||
               std::any_of(later_.begin(), later_.end(), [&](const Later& l) { return l.lba == block; });
  if (!known && later_.size() < later_max) later_.push_back({block, v_.now + later_by});
}

void Repair::give_up() {
  for (const auto& [ticket, job] : jobs_) finished_.push_back({ticket, false});
  jobs_.clear();
  later_.clear();
  for (const auto& [lba, block] : blocks_) v_.committed.unwatch(lba);
  blocks_.clear();
}

void Repair::advance(std::span<const Stream> streams) {
  if (v_.failed) give_up();
  start_blocks();
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    auto ended = step(it->first, it->second, streams);
    if (ended == End::lost && !it->second.late.empty()) {
      begin_anew(it->first, it->second);
      continue;
    }
    if (!ended) {
      ++it;
      continue;
    }
    end(it->first, it->second, *ended);
    it = blocks_.erase(it);
  }
  start_blocks();
  tell_news();
}

// ---- blocks

void Repair::start_blocks() {
  std::vector<Ticket> closing;
  for (auto& [ticket, job] : jobs_) {
    bool begun = false;
    while (!job.todo.empty() && start(job.todo.back(), ticket, begun)) {
      job.open += begun;
      job.todo.pop_back();
    }
    if (job.todo.empty() && job.open == 0) closing.push_back(ticket);
  }
  for (Ticket ticket : closing) close(ticket, End::readable);
  if (v_.disk.inconsistent()) later_.clear();
  bool begun = false;
  while (!later_.empty() && later_.front().at <= v_.now && start(later_.front().lba, 0, begun))
    later_.pop_front();
}

// Reads the block alone. If memory has the block, a checkpoint will write it home, and no repair is needed.
bool Repair::start(Lba lba, Ticket ticket, bool& begun) {
  begun = false;
  auto it = blocks_.find(lba);
  if (it == blocks_.end()) {
    if (v_.committed.find(lba).kind != BlockIndex::Kind::absent) return true;
    if (blocks_.size() >= blocks_max || v_.read_arena.free() == 0) return false;
    it = blocks_.emplace(lba, Block{}).first;
    v_.committed.watch(lba);
    it->second.read = ++last_read_;
    Slot slot = v_.read_arena.take();
    reads_.emplace(last_read_, Reading{lba, slot});
    v_.out.home_reads.push_back({make_token(TokenKind::repair_read, last_read_),
                                 v_.home_map.at(lba),
                                 {{v_.read_arena.data(slot), block_size}}});
  }
  auto& waiting = it->second.state == State::reading ? it->second.tickets : it->second.late;
  if (ticket != 0) waiting.push_back(ticket);
  begun = true;
  return true;
}

void Repair::on_read(std::uint64_t n, int error) {
  auto read = reads_.find(n);
  TL_CHECK(read != reads_.end());
  auto it = blocks_.find(read->second.lba);
  Reading done = read->second;
  reads_.erase(read);
  bool given_up = it == blocks_.end() || it->second.read != n;
  bool wrong = !given_up && error == 0 && !v_.committed.touched(done.lba) &&
               !v_.digests.fits(done.lba, v_.read_arena.data(done.slot));
  v_.read_arena.unref(done.slot);
  if (given_up) return;
  if (error != 0 || wrong) {
    it->second.state = State::choosing;
    it->second.wrong = wrong;
    if (wrong) v_.counters.wrong_blocks++;
    return;
  }
  end(it->first, it->second, End::readable);
  blocks_.erase(it);
}

std::optional<Repair::End> Repair::step(Lba lba, Block& b, std::span<const Stream> streams) {
  if (v_.committed.touched(lba)) return End::overwritten;  // a checkpoint will write the new content home
  if (b.state == State::asking || b.state == State::holding) {
    bool there = std::any_of(streams.begin(), streams.end(), [&](const Stream& s) {
      return s.peer == b.peer && s.connection == b.connection && s.epoch == b.epoch;
    });
    bool reached = b.state == State::holding && v_.commit_lsn() >= b.answer.as_of;
    if (there && reached && mend(lba, b)) return End::mended;
    if (!there || v_.now >= b.deadline) b.state = State::choosing;
  }
  return b.state == State::choosing ? choose(lba, b, streams) : std::nullopt;
}

// Members of the in-sync set are asked first.
std::optional<Repair::End> Repair::choose(Lba lba, Block& b, std::span<const Stream> streams) {
  const Stream* best = nullptr;
  for (const Stream& s : streams)
    if (s.holds && !(b.tried & set_of(s.peer)) && (!best || (s.in_sync && !best->in_sync))) best = &s;
  if (!best) return End::lost;
  b.state = State::asking;
  b.tried |= set_of(best->peer);
  b.peer = best->peer;
  b.connection = best->connection;
  b.seq = ++last_seq_;
  b.epoch = best->epoch;
  b.deadline = v_.now + v_.config.fetch_timeout;
  v_.out.sends.push_back(Send{b.peer, FetchBlock{best->epoch, b.seq, lba, v_.commit_lsn()}});
  return std::nullopt;
}

bool Repair::handle(ReplicaId from, FetchedBlock& m) {
  if (m.seq == 0 || m.seq > last_seq_) return false;
  for (auto& [lba, b] : blocks_) {
    if (b.state != State::asking || b.seq != m.seq || b.peer != from) continue;
    if (m.epoch != b.epoch) return false;
    b.state = is_right(lba, m) ? State::holding : State::choosing;
    b.answer = std::move(m);
    break;
  }
  return true;
}

// Compares the answer with the digest here. The block of the other replica may be corrupt too, without a
// digest there that shows it.
bool Repair::is_right(Lba lba, const FetchedBlock& m) const {
  if (m.kind == FetchedBlock::Kind::nothing) return false;
  return v_.digests.fits(lba, m.kind == FetchedBlock::Kind::zeros ? zero_block.data() : m.content.data());
}

// Some slots stay free for sealing: without sealing, no slot of the arena would ever become free.
bool Repair::mend(Lba lba, Block& b) {
  checkpointer_.request();
  if (v_.arena.free() <= record_meta_blocks_max) return false;
  TL_CHECK(v_.committed.find(lba).kind == BlockIndex::Kind::absent);
  v_.committed.unwatch(lba);
  if (v_.committed.empty()) v_.committed_since = v_.now;
  if (b.answer.kind == FetchedBlock::Kind::zeros) {
    v_.committed.put_zeros(lba, 1, repaired_serial);
    return true;
  }
  Slot slot = v_.arena.take();
  std::memcpy(v_.arena.data(slot), b.answer.content.data(), block_size);
  v_.committed.put_data(lba, slot, repaired_serial);
  v_.arena.unref(slot);
  return true;
}

// ---- ends

void Repair::end(Lba lba, const Block& b, End end) {
  v_.committed.unwatch(lba);
  if (end == End::lost) note_lost(lba);
  if (end == End::readable) v_.counters.reread_blocks++;
  if (end == End::overwritten) v_.counters.overwritten_blocks++;
  if (end == End::mended) {
    v_.counters.repaired_blocks++;
    if (news_.mended++ == 0) news_.first_mended = lba;
    if (b.wrong) news_.wrong++;
    news_.from = b.peer;
  }
  for (const auto* tickets : {&b.tickets, &b.late})
    for (Ticket ticket : *tickets) close(ticket, end);
}

// Fails the requests that have waited for a whole round of questions. Later requests get another round.
void Repair::begin_anew(Lba lba, Block& b) {
  note_lost(lba);
  for (Ticket ticket : b.tickets) close(ticket, End::lost);
  b.tickets = std::exchange(b.late, {});
  b.tried = 0;
  b.state = State::choosing;
}

void Repair::close(Ticket ticket, End end) {
  auto it = jobs_.find(ticket);
  if (it == jobs_.end()) return;
  Job& job = it->second;
  if (job.open > 0) --job.open;
  if (end == End::lost) {
    job.lost = true;
    job.todo.clear();  // the request fails in any case
  }
  if (job.open > 0 || !job.todo.empty()) return;
  finished_.push_back({ticket, !job.lost});
  jobs_.erase(it);
}

void Repair::note_lost(Lba block) {
  v_.counters.unreadable_blocks++;
  if (news_.lost++ == 0) news_.first_lost = block;
}

void Repair::tell_news() {
  if (!news_.any() || v_.now < quiet_until_) return;
  auto blocks = [](std::uint64_t n, Lba first) {
    return n == 1 ? fmt::format("block {} of the data area", first.v)
                  : fmt::format("{} blocks of the data area, the first {},", n, first.v);
  };
  if (news_.mended > 0)
    v_.out.notices.push_back(
        {true,
         fmt::format("{} {}: repaired from replica {}", blocks(news_.mended, news_.first_mended),
                     news_.wrong == 0              ? "could not be read"
                     : news_.wrong == news_.mended ? "had wrong content"
                                                   : "could not be read or had wrong content",
                     news_.from),
         NoticeKind::repaired, news_.from});
  if (news_.lost > 0)
    v_.out.notices.push_back(
        {true,
         fmt::format("{} cannot be read, and no connected replica has the content: reads fail until a "
                     "replica with the content connects, or new content is written",
                     blocks(news_.lost, news_.first_lost)),
         NoticeKind::unreadable});
  news_ = {};
  quiet_until_ = v_.now + news_every;
}

std::optional<Instant> Repair::next_tick() const {
  std::optional<Instant> next;
  auto consider = [&](Instant at) {
    if (!next || at < *next) next = at;
  };
  for (const auto& [lba, b] : blocks_)
    if (b.state == State::asking || b.state == State::holding) consider(b.deadline);
  if (!later_.empty()) consider(later_.front().at);
  if (news_.any()) consider(quiet_until_);
  return next;
}

}  // namespace twinloft::repl::core
