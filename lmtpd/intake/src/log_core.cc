#include "twinloft/lmtpd/intake/log_core.h"

#include <algorithm>

#include "twinloft/base/check.h"

namespace twinloft::lmtpd {

using intake_log::block_bytes;
using intake_log::whole_blocks;

namespace {

// Groups of an eighth: one that does not fit before a segment's end wastes less than its own size there.
constexpr std::uint64_t groups_in_log_min = 8;
constexpr std::size_t cancel_room_max = 16 * 1024;
// Cancel records leave these blocks for groups that say what is retired. Such a group takes one block.
constexpr std::uint64_t announcing_bytes = 4 * block_bytes;

}  // namespace

std::string_view to_string(LogRefusal refusal) {
  switch (refusal) {
    case LogRefusal::too_large:
      return "the message is larger than a group of the log";
    case LogRefusal::group_full:
      return "the open group of the log is full";
    case LogRefusal::half_full:
      return "the log is half full";
    case LogRefusal::mark_full:
      return "the mark of the log is full";
    case LogRefusal::failed:
      return "the log has failed";
  }
  return "";
}

std::size_t LogCore::group_bytes(const intake_log::LogShape& shape) {
  const std::uint64_t bytes = std::min(
      {shape.segment_bytes, shape.bytes() / groups_in_log_min, std::uint64_t{intake_log::group_bytes_max}});
  return bytes / block_bytes * block_bytes;
}

LogCore::LogCore(const Config& config, const intake_log::Scan& scan, intake_log::Mark mark,
                 MutableByteSpan one, MutableByteSpan two)
    : config_(config),
      mark_(std::move(mark)),
      builders_{intake_log::GroupBuilder(one), intake_log::GroupBuilder(two)},
      cancel_room_(std::min(cancel_room_max, std::min(one.size(), two.size()) / 4)),
      end_(scan.end),
      next_group_(scan.next_group),
      next_entry_(scan.next_entry),
      durable_groups_(scan.next_group),
      durable_entries_(scan.next_entry),
      retiring_(scan.retired),
      retired_(scan.retired) {
  TL_CHECK(std::max(one.size(), two.size()) <= group_bytes(config.shape));
  TL_CHECK(scan.damage.empty() && mark_.end() <= scan.next_entry && mark_.prefix() >= scan.retired);
  for (const intake_log::GroupHeader& group : scan.groups)
    live_.push_back({group.number, group.at, group.end_entry()});
  measure();
}

// --- Deliveries. ---

bool LogCore::is_half_full(std::size_t more) const {
  return (used_ + whole_blocks(open().used() + more)) * 2 > config_.shape.bytes();
}

std::optional<LogRefusal> LogCore::refusal(std::span<const intake_log::EntryName> names,
                                           std::size_t content_bytes) const {
  if (failed_) return LogRefusal::failed;
  const std::size_t bytes = intake_log::message_bytes(names, content_bytes);
  const std::size_t capacity = open().room() + open().used();
  if (intake_log::group_header_bytes + bytes + cancel_room_ > capacity) return LogRefusal::too_large;
  if (bytes + cancel_room_ > open().room()) return LogRefusal::group_full;
  if (is_half_full(bytes)) return LogRefusal::half_full;
  if (next_entry() + names.size() > mark_.room()) return LogRefusal::mark_full;
  return std::nullopt;
}

Result<LogTicket> LogCore::append(std::span<const intake_log::EntryName> names, std::string_view content) {
  if (auto refused = refusal(names, content.size())) return fail(Errc::exhausted, "{}", to_string(*refused));
  const LogTicket ticket{next_group_, next_entry()};
  TL_TRY(open().add_message(names, content));
  return ticket;
}

Result<LogTicket> LogCore::cancel(std::uint64_t entry) {
  if (failed_) return fail(Errc::exhausted, "{}", to_string(LogRefusal::failed));
  TL_CHECK(entry < durable_entries_);
  // Twice its size, for what a segment's end wastes.
  const std::size_t bytes = whole_blocks(open().used() + intake_log::cancel_bytes);
  if (used_ + 2 * bytes + announcing_bytes >= config_.shape.bytes())
    return fail(Errc::exhausted, "the log is full");
  TL_TRY(open().add_cancel(entry));
  return LogTicket{next_group_, entry};
}

void LogCore::settle(std::uint64_t entry) {
  TL_CHECK(entry < durable_entries_);
  mark_.settle(entry);
}

void LogCore::settle_all_durable() {
  mark_.settle_below(durable_entries_);
}

// --- The writer of groups. ---

// An empty group is written only if it frees a group, or ends the need for the last one.
bool LogCore::must_announce() const {
  return retiring_ > retired_ && !live_.empty() && live_.front().end_entry <= retiring_;
}

bool LogCore::wants_write() const {
  if (failed_ || writing_) return false;
  return open().records() > 0 || (must_announce() && used_ + block_bytes < config_.shape.bytes());
}

LogCore::Write LogCore::begin_write() {
  TL_CHECK(wants_write());
  const std::size_t bytes = whole_blocks(open().used());
  intake_log::GroupHeader header;
  header.incarnation = config_.incarnation;
  header.number = next_group_;
  header.first_entry = next_entry_;
  header.mount = config_.mount;
  header.retired = retiring_;
  header.at = intake_log::place_for(config_.shape, end_, bytes);
  const auto needed = std::ranges::find_if(live_,
                                           [&](const Live& live) { return live.end_entry > retiring_; });
  header.oldest_number = needed == live_.end() ? header.number : needed->number;
  header.oldest = needed == live_.end() ? header.at : needed->at;
  const ByteSpan group = open().finish(header);
  header.entries = open().entries();

  const std::uint64_t before = used_;
  live_.push_back({header.number, header.at, header.end_entry()});
  end_ = intake_log::end_of(config_.shape, header.at, bytes);
  measure();
  TL_CHECK_MSG(used_ > before && used_ < config_.shape.bytes(), "a group overwrites one that is needed");
  ++next_group_;
  next_entry_ = header.end_entry();
  writing_ = header;
  open_ = 1 - open_;
  open().clear();
  return {header.number, header.at, group};
}

void LogCore::written() {
  TL_CHECK(writing_ && !failed_);
  durable_groups_ = writing_->number + 1;
  durable_entries_ = writing_->end_entry();
  retired_ = writing_->retired;
  while (live_.front().number < writing_->oldest_number) live_.pop_front();
  writing_.reset();
  measure();
}

void LogCore::write_failed() {
  failed_ = true;
}

void LogCore::measure() {
  if (live_.empty()) {
    used_ = 0;
    return;
  }
  auto linear = [&](intake_log::Position at) { return at.segment * config_.shape.segment_bytes + at.offset; };
  const std::uint64_t size = config_.shape.bytes();
  used_ = (linear(end_) + size - linear(live_.front().at)) % size;
}

// --- Checkpoints. ---

bool LogCore::checkpoint_wanted() const {
  if (failed_ || mark_.prefix() <= retiring_) return false;
  return used_ * 4 >= config_.shape.bytes();
}

void LogCore::checkpointed(std::uint64_t prefix) {
  TL_CHECK(prefix <= mark_.prefix());
  if (!failed_) retiring_ = std::max(retiring_, prefix);
}

intake_log::Scan LogCore::ending() const {
  TL_CHECK(is_empty() && live_.size() <= 1);
  intake_log::Scan out;
  out.end = end_;
  out.next_group = next_group_;
  out.next_entry = next_entry_;
  out.retired = retired_;
  if (live_.empty()) return out;
  intake_log::GroupHeader newest;
  newest.number = live_.back().number;
  newest.at = live_.back().at;
  newest.first_entry = live_.back().end_entry;
  out.groups.push_back(newest);
  return out;
}

bool LogCore::is_empty() const {
  return !writing_ && open().records() == 0 && retired_ == durable_entries_;
}

}  // namespace twinloft::lmtpd
