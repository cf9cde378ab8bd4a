#include "spill_index.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

const SpillIndex::Held& SpillIndex::of(RecordNo no) const {
  TL_CHECK(holds(no));
  return *std::prev(
      std::partition_point(held_.begin(), held_.end(), [&](const Held& h) { return h.first <= no; }));
}

const SpillIndex::Held* SpillIndex::behind(Lsn lsn) const {
  auto at = std::partition_point(held_.begin(), held_.end(),
                                 [&](const Held& h) { return h.chunk.last.lsn <= lsn; });
  return at != held_.end() && at->chunk.before.lsn <= lsn ? &*at : nullptr;
}

const SpillIndex::Held* SpillIndex::upto(Lsn lsn) const {
  auto at = std::partition_point(held_.begin(), held_.end(),
                                 [&](const Held& h) { return h.chunk.last.lsn <= lsn; });
  return at == held_.begin() ? nullptr : &*std::prev(at);
}

JournalPos SpillIndex::pos_before(RecordNo no) const {
  const Held& h = of(no);
  return {h.chunk.from.v + (h.chunk.to.v - h.chunk.from.v) / h.chunk.records * (no - h.first)};
}

bool SpillIndex::load(const std::vector<SpillChunk>& chunks, const Log& log) {
  TL_CHECK(empty());
  if (chunks.empty()) return true;
  auto end = log.find(chunks.back().last);
  if (!end) return false;
  std::uint64_t records = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    bool continues = i == 0 ||
                     (chunks[i].before == chunks[i - 1].last && chunks[i].number == chunks[i - 1].number + 1);
    records += chunks[i].records;
    if (!continues || records >= first_record_no) return false;
  }
  RecordNo first = *end - records;
  for (const SpillChunk& c : chunks) {
    add({first, c});
    first += c.records;
  }
  return true;
}

void SpillIndex::add(const Held& held) {
  TL_CHECK(empty() || held.first == end());
  held_.push_back(held);
  bytes_ += held.chunk.bytes;
}

void SpillIndex::drop_before(RecordNo no) {
  for (; !held_.empty() && held_.front().end() <= no; held_.pop_front()) bytes_ -= held_.front().chunk.bytes;
}

void SpillIndex::clear() {
  held_.clear();
  bytes_ = 0;
}

}  // namespace twinloft::repl::core
