#include "repair_answer.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

void RepairAnswers::ask(ReplicaId from, const FetchBlock& question) {
  auto of = [&](const Question& q) { return q.peer == from; };
  if (std::count_if(questions_.begin(), questions_.end(), of) >= questions_max)
    questions_.erase(std::find_if(questions_.begin(), questions_.end(), of));
  questions_.push_back({from, v_.find_link(from)->connection, question, v_.now + v_.config.fetch_timeout});
}

void RepairAnswers::advance(std::span<const Stream> streams) {
  for (Question& q : questions_) step(q, streams);
  std::erase_if(questions_, [](const Question& q) { return q.answered; });
}

void RepairAnswers::step(Question& q, std::span<const Stream> streams) {
  const Link* link = v_.find_link(q.peer);
  auto stream = std::find_if(streams.begin(), streams.end(),
                             [&](const Stream& s) { return s.peer == q.peer; });
  bool flows = stream != streams.end();
  bool gone = !link->up || link->connection != q.connection || (flows && stream->epoch != q.asked.epoch);
  if (gone || v_.now >= q.until) {
    q.answered = true;  // the peer does not wait any more
    return;
  }
  if (!flows) return;  // the connection is not matched yet, or a tail is being cut off
  if (v_.disk.inconsistent() || v_.failed) return answer(q, FetchedBlock::Kind::nothing);
  if (v_.commit_lsn() < q.asked.after || !v_.home_is_settled()) return;
  auto found = v_.committed.find(q.asked.lba);
  if (found.kind == BlockIndex::Kind::data)
    return answer(q, FetchedBlock::Kind::data, v_.arena.data(found.slot));
  if (found.kind == BlockIndex::Kind::zeros) return answer(q, FetchedBlock::Kind::zeros);
  if (q.read == 0) read(q);
}

// Questions are in order of arrival, so the first question has the earliest end.
std::optional<Instant> RepairAnswers::next_tick() const {
  if (questions_.empty()) return std::nullopt;
  return questions_.front().until;
}

void RepairAnswers::read(Question& q) {
  if (v_.read_arena.free() == 0) return;  // the next event tries again
  q.read = ++last_read_;
  q.home_changes = v_.home_changes;
  Slot slot = v_.read_arena.take();
  reads_.emplace(q.read, slot);
  v_.out.home_reads.push_back({make_token(TokenKind::answer_read, q.read),
                               v_.home_map.at(q.asked.lba),
                               {{v_.read_arena.data(slot), block_size}}});
}

// If a block left the committed image during the read, the read may be older than the block. Then the next
// event starts the question again.
void RepairAnswers::on_read(std::uint64_t n, int error) {
  auto read = reads_.find(n);
  TL_CHECK(read != reads_.end());
  Slot slot = read->second;
  reads_.erase(read);
  auto q = std::find_if(questions_.begin(), questions_.end(), [&](const Question& x) { return x.read == n; });
  if (q != questions_.end()) {
    q->read = 0;
    bool stale = q->home_changes != v_.home_changes ||
                 v_.committed.find(q->asked.lba).kind != BlockIndex::Kind::absent;
    bool wrong = error == 0 && !v_.digests.fits(q->asked.lba, v_.read_arena.data(slot));
    if (!stale && (error != 0 || wrong)) {
      // Only a secondary starts a repair of its own block here. Otherwise two replicas without the content
      // would ask each other forever.
      const Link* link = v_.find_link(q->peer);
      if (link->state && link->state->primary) repair_.begin_later(q->asked.lba);
      answer(*q, FetchedBlock::Kind::nothing);
    } else if (!stale && !v_.disk.inconsistent()) {
      answer(*q, FetchedBlock::Kind::data, v_.read_arena.data(slot));
    }
  }
  v_.read_arena.unref(slot);
}

void RepairAnswers::answer(Question& q, FetchedBlock::Kind kind, const std::byte* content) {
  q.answered = true;
  const Link* link = v_.find_link(q.peer);
  if (!link->up || link->connection != q.connection) return;
  FetchedBlock m{q.asked.epoch, q.asked.seq, kind, v_.commit_lsn(), {}};
  if (content) m.content.assign(content, content + block_size);
  v_.out.sends.push_back(Send{q.peer, std::move(m)});
}

}  // namespace twinloft::repl::core
