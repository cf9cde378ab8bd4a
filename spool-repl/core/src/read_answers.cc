#include "read_answers.h"

#include <algorithm>
#include <utility>

#include "request_blocks.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::core {

void ReadAnswers::ask(ReplicaId from, const ReadBlocks& question) {
  Question q;
  q.peer = from;
  q.connection = v_.find_link(from)->connection;
  q.asked = question;
  q.until = v_.now + v_.config.balanced_read_timeout;
  auto of_peer = [&](const auto& each) { return each.second.peer == from; };
  if (std::count_if(questions_.begin(), questions_.end(), of_peer) >= questions_max) return decline(q);
  questions_.emplace(++last_, std::move(q));
}

bool ReadAnswers::gone(const Question& q, std::span<const Stream> streams) const {
  const Link* link = v_.find_link(q.peer);
  bool other = !streams.empty() && (streams[0].peer != q.peer || streams[0].epoch != q.asked.epoch);
  return !link->up || link->connection != q.connection || other;
}

void ReadAnswers::advance(std::span<const Stream> streams) {
  for (auto& [number, q] : questions_) step(number, q, streams);
  std::erase_if(questions_, [](const auto& each) { return each.second.done; });
}

void ReadAnswers::step(std::uint64_t number, Question& q, std::span<const Stream> streams) {
  if (q.outstanding > 0) return;
  if (gone(q, streams)) {
    release(q);
    q.done = true;
    return;
  }
  if (v_.now >= q.until) return decline(q);
  if (streams.empty()) return;  // the connection is not matched yet, or a tail is being cut off
  bool member = (v_.told_epoch().in_sync & set_of(v_.sb.replica)) != 0;
  if (!member || v_.disk.inconsistent() || v_.failed || (q.failed && q.apart)) return decline(q);
  if (q.failed) {
    release(q);
    q.apart = true;
    q.failed = q.read = false;
  }
  if (v_.commit_lsn() < q.asked.after || !v_.home_is_settled()) return;
  while (!q.done) {
    if (!q.read) read(number, q);
    if (!q.read) return;
    answer(q);  // not done: what was read is older, so it is read again
  }
}

void ReadAnswers::read(std::uint64_t number, Question& q) {
  if (v_.read_arena.free() < q.asked.blocks) return;  // the next event tries again
  q.slots.assign(q.asked.blocks, std::nullopt);
  q.runs.clear();
  q.home_changes = v_.home_changes;
  q.rounds++;
  bool begun = false;
  for (std::uint32_t i = 0; i < q.asked.blocks; ++i) {
    Lba lba = q.asked.lba + i;
    bool absent = v_.committed.find(lba).kind == BlockIndex::Kind::absent;
    if (absent) {
      q.slots[i] = v_.read_arena.take();
      if (!begun || q.apart || !v_.home_map.follows(lba)) {
        std::uint64_t n = number << run_bits | q.runs.size();
        v_.out.home_reads.push_back({make_token(TokenKind::balanced_read, n), v_.home_map.at(lba), {}});
        q.runs.push_back({lba});
      }
      q.runs.back().blocks++;
      add_piece(v_.out.home_reads.back().pieces, v_.read_arena.data(*q.slots[i]), block_size);
    }
    begun = absent;
  }
  q.outstanding = static_cast<unsigned>(q.runs.size());
  q.read = q.outstanding == 0;
}

void ReadAnswers::on_read(std::uint64_t n, int error) {
  auto it = questions_.find(n >> run_bits);
  TL_CHECK(it != questions_.end() && it->second.outstanding > 0);
  Question& q = it->second;
  const Question::Run& run = q.runs.at(n & ((1u << run_bits) - 1));
  if (error != 0) {
    q.failed = true;
    if (q.apart) repair_.begin_later(run.lba);
  }
  if (--q.outstanding == 0) q.read = true;
}

// If a block left memory since the reads began, its digest decides whether they have read the new content.
const std::byte* ReadAnswers::content(Question& q, std::uint32_t i, bool& stale) {
  Lba lba = q.asked.lba + i;
  if (const std::byte* newest = v_.content_of(v_.committed.find(lba))) return newest;
  const std::byte* block = q.slots[i] ? v_.read_arena.data(*q.slots[i]) : nullptr;
  bool same_home = q.home_changes == v_.home_changes;
  if (block && (same_home ? v_.digests.fits(lba, block) : v_.digests.proves(lba, block))) return block;
  stale = stale || !same_home;
  if (same_home) repair_.begin_later(lba);
  return nullptr;
}

void ReadAnswers::answer(Question& q) {
  BlocksRead m{q.asked.epoch, q.asked.seq, v_.commit_lsn(), q.asked.blocks, {}, {}};
  m.zeros.resize((q.asked.blocks + 63) / 64);
  bool stale = false, wrong = false;
  for (std::uint32_t i = 0; i < q.asked.blocks && !stale && !wrong; ++i) {
    const std::byte* block = content(q, i, stale);
    wrong = !block && !stale;
    if (!block) continue;
    if (is_zero({block, block_size}))
      m.zeros[i / 64] |= std::uint64_t{1} << i % 64;
    else
      m.content.insert(m.content.end(), block, block + block_size);
  }
  if (wrong || (stale && q.rounds >= 2) || !may_say(m.content.size())) return decline(q);
  release(q);
  q.read = false;
  if (stale) return;
  q.done = true;
  v_.out.sends.push_back(Send{q.peer, std::move(m)});
}

// A peer may ask for more than its connection takes.
bool ReadAnswers::may_say(std::uint64_t bytes) {
  if (std::exchange(said_in_, v_.outputs) != v_.outputs) said_ = 0;
  said_ += bytes;
  return said_ <= said_max;
}

void ReadAnswers::decline(Question& q) {
  release(q);
  q.done = true;
  v_.out.sends.push_back(Send{q.peer, BlocksRead{q.asked.epoch, q.asked.seq, v_.commit_lsn(), 0, {}, {}}});
}

void ReadAnswers::release(Question& q) {
  for (auto& slot : q.slots)
    if (slot) v_.read_arena.unref(*slot);
  q.slots.clear();
}

// Questions are in order of arrival. One whose reads are in flight waits for their end.
std::optional<Instant> ReadAnswers::next_tick() const {
  for (const auto& [number, q] : questions_)
    if (q.outstanding == 0) return q.until;
  return std::nullopt;
}

}  // namespace twinloft::repl::core
