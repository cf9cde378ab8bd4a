#include "twinloft/spool-repl/core/log.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::repl::core {

Log::Log(RingGeometry ring, LogMark tail_mark, Epoch tail_epoch)
    : ring_bytes_(ring.bytes),
      tail_pos_(ring.tail),
      head_(ring.tail),
      tail_mark_(tail_mark),
      tail_epoch_(tail_epoch) {}

std::optional<JournalPos> Log::place(std::uint32_t blocks) const {
  std::uint64_t bytes = std::uint64_t{blocks} * block_size;
  std::uint64_t at = head_.v, to_end = ring_bytes_ - at % ring_bytes_;
  if (bytes > to_end) at += to_end;
  if (at + bytes - tail_pos_.v > ring_bytes_) return std::nullopt;
  return JournalPos{at};
}

RecordNo Log::append(LogRecord record) {
  TL_CHECK(record.pos >= head_);
  TL_CHECK(record.first == last_mark().lsn + 1);
  head_.v = record.pos.v + std::uint64_t{record.total_blocks} * block_size;
  TL_CHECK(head_.v - tail_pos_.v <= ring_bytes_);
  records_.push_back(std::move(record));
  RecordNo no = end() - 1;
  if (records_.back().durable) set_durable(no);
  return no;
}

LogRecord& Log::at(RecordNo no) {
  TL_CHECK(no >= base_ && no < end());
  return records_[no - base_];
}
const LogRecord& Log::at(RecordNo no) const {
  TL_CHECK(no >= base_ && no < end());
  return records_[no - base_];
}

void Log::set_durable(RecordNo no) {
  at(no).durable = true;
  while (durable_end_ < std::min(end(), held_) && at(durable_end_).durable) ++durable_end_;
}

void Log::release_durable() {
  held_ = UINT64_MAX;
  while (durable_end_ < end() && at(durable_end_).durable) ++durable_end_;
}

void Log::set_committed_end(RecordNo new_end) {
  TL_CHECK(new_end >= committed_end_ && new_end <= durable_end_);
  committed_end_ = new_end;
}

LogMark Log::mark_before(RecordNo end_no) const {
  TL_CHECK(end_no >= base_ && end_no <= end());
  return end_no == base_ ? tail_mark_ : at(end_no - 1).mark;
}

Epoch Log::epoch_before(RecordNo end_no) const {
  return end_no == base_ ? tail_epoch_ : at(end_no - 1).epoch;
}

JournalPos Log::pos_before(RecordNo end_no) const {
  if (end_no == base_) return tail_pos_;
  const LogRecord& r = at(end_no - 1);
  return {r.pos.v + std::uint64_t{r.total_blocks} * block_size};
}

RecordNo Log::end_upto(Lsn lsn) const {
  auto it = std::partition_point(records_.begin(), records_.end(),
                                 [&](const LogRecord& r) { return r.mark.lsn <= lsn; });
  return base_ + static_cast<std::uint64_t>(it - records_.begin());
}

std::optional<RecordNo> Log::find(const LogMark& mark) const {
  if (mark.lsn < tail_mark_.lsn) return std::nullopt;
  RecordNo end_no = end_upto(mark.lsn);
  if (mark_before(end_no) != mark) return std::nullopt;
  return end_no;
}

void Log::drop_before(RecordNo new_first) {
  TL_CHECK(new_first <= committed_end_);
  while (base_ < new_first) {
    const LogRecord& r = records_.front();
    TL_CHECK(!r.in_memory());
    tail_mark_ = r.mark;
    tail_epoch_ = r.epoch;
    tail_pos_ = pos_before(base_ + 1);
    records_.pop_front();
    ++base_;
  }
}

void Log::cut(RecordNo new_end) {
  TL_CHECK(new_end >= committed_end_);
  while (end() > new_end) {
    TL_CHECK(!records_.back().in_memory());
    records_.pop_back();
  }
  durable_end_ = std::min(durable_end_, new_end);
  head_ = pos_before(new_end);
}

void Log::reset(const LogMark& tail, const Epoch& tail_epoch) {
  base_ = durable_end_ = committed_end_ = end();
  records_.clear();
  tail_pos_ = head_;
  tail_mark_ = tail;
  tail_epoch_ = tail_epoch;
}

}  // namespace twinloft::repl::core
