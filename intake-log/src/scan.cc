#include "twinloft/intake_log/scan.h"

#include <algorithm>
#include <memory>
#include <new>

#include "twinloft/base/check.h"

namespace twinloft::intake_log {

namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
static_assert(group_bytes_max >= piece_bytes);

// Memory as SegmentReader wants it.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes)
      : memory_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{block_bytes}))) {}
  MutableByteSpan first(std::size_t bytes) const { return {memory_.get(), bytes}; }

 private:
  struct Free {
    void operator()(std::byte* at) const { ::operator delete(at, std::align_val_t{block_bytes}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

// What the headers of all blocks say.
struct Headers {
  std::vector<GroupHeader> groups;  // of this log and version
  std::optional<BlockHeader> newest_other_version, foreign;
  Position foreign_at;
};

bool fits(const LogShape& shape, const GroupHeader& h) {
  return h.at.segment < shape.segments && h.at.offset + h.bytes <= shape.segment_bytes &&
         h.oldest.segment < shape.segments && h.oldest.offset < shape.segment_bytes;
}

void add_block(Headers& headers, const LogShape& shape, const BlockHeader& block, Position at) {
  switch (block.kind) {
    case BlockKind::none:
      return;
    case BlockKind::group:
      if (fits(shape, block.header)) headers.groups.push_back(block.header);
      return;
    case BlockKind::foreign:
      if (!headers.foreign) headers.foreign_at = at;
      if (!headers.foreign) headers.foreign = block;
      return;
    case BlockKind::version: {
      auto& newest = headers.newest_other_version;
      if (!newest || newest->header.number < block.header.number) newest = block;
      return;
    }
  }
}

class Scanner {
 public:
  Scanner(const LogShape& shape, const Uuid& incarnation, const SegmentReader& reader)
      : shape_(shape), incarnation_(incarnation), reader_(reader) {}

  Result<Scan> run() {
    TL_TRY(read_headers());
    TL_TRY(check_others());
    auto& groups = headers_.groups;
    if (groups.empty()) return Scan{};
    std::ranges::sort(groups, [](const GroupHeader& a, const GroupHeader& b) {
      return a.number != b.number ? a.number < b.number : a.at < b.at;
    });
    Scan out;
    TL_TRY(find_newest(out));
    if (newest_) TL_TRY(walk(out));
    return out;
  }

 private:
  using Place = std::vector<GroupHeader>::const_iterator;

  Status read_headers() {
    for (std::uint32_t segment = 0; segment < shape_.segments; ++segment)
      for (std::uint64_t offset = 0; offset < shape_.segment_bytes; offset += piece_bytes) {
        MutableByteSpan piece = memory_.first(
            std::min<std::uint64_t>(piece_bytes, shape_.segment_bytes - offset));
        TL_TRY(reader_.read(segment, offset, piece));
        for (std::size_t at = 0; at < piece.size(); at += block_bytes) {
          const Position place{segment, offset + at};
          const ByteSpan block = piece.subspan(at, block_bytes);
          add_block(headers_, shape_, look_at_block(block, incarnation_, place), place);
        }
      }
    return {};
  }

  // A program that does not know the newest group's version must not write behind an older one.
  Status check_others() const {
    std::uint64_t newest = 0;
    for (const GroupHeader& group : headers_.groups) newest = std::max(newest, group.number);
    const auto& other = headers_.newest_other_version;
    if (other && (headers_.groups.empty() || other->header.number > newest))
      return fail(Errc::invalid, "group {} of the log has version {}, and this program reads version {}",
                  other->header.number, other->version, group_version);
    if (headers_.groups.empty() && headers_.foreign)
      return fail(Errc::conflict, "{} has a group of the log {}, and this is the log {}",
                  to_text(headers_.foreign_at), headers_.foreign->header.incarnation.text(),
                  incarnation_.text());
    return {};
  }

  // Each byte is read once for its header, and few times for checksums: overlapping groups that all fail are
  // not a log.
  Result<bool> is_whole(const GroupHeader& h) {
    checked_bytes_ += h.bytes;
    if (checked_bytes_ > 2 * (shape_.bytes() + group_bytes_max))
      return fail(Errc::corrupt, "the log has more damaged groups than a program can have written");
    MutableByteSpan bytes = memory_.first(h.bytes);
    TL_TRY(reader_.read(h.at.segment, h.at.offset, bytes));
    return has_whole_records(h, bytes);
  }

  // The whole one of the groups with this number, or nullptr.
  Result<const GroupHeader*> whole_one(Place first, Place last) {
    for (Place at = first; at != last; ++at) {
      TL_TRY_ASSIGN(bool whole, is_whole(*at));
      if (whole) return &*at;
    }
    return nullptr;
  }

  // One group is written at a time. So only the group with the highest number can be torn.
  Status find_newest(Scan& out) {
    const auto& groups = headers_.groups;
    const std::uint64_t highest = groups.back().number;
    const Place first = std::ranges::lower_bound(groups, highest, {}, &GroupHeader::number);
    TL_TRY_ASSIGN(newest_, whole_one(first, groups.end()));
    if (newest_) {
      end_number_ = highest + 1;
      end_entry_ = newest_->end_entry();
      out.end = end_of(shape_, newest_->at, newest_->bytes);
    } else {
      const GroupHeader& torn = *first;
      out.torn = torn.at;
      end_number_ = highest;
      end_entry_ = torn.first_entry;
      out.end = torn.at;
      TL_TRY(find_before(first));
      if (newest_ && newest_->number + 1 == highest) out.end = end_of(shape_, newest_->at, newest_->bytes);
    }
    out.next_group = end_number_;
    out.next_entry = end_entry_;
    return {};
  }

  // The newest group before the torn one. An earlier write of the same number may have been torn too, and lie
  // elsewhere.
  Status find_before(Place torn) {
    const auto& groups = headers_.groups;
    if (torn == groups.begin()) return {};
    const Place last = torn - 1;
    const Place first = std::ranges::lower_bound(groups, last->number, {}, &GroupHeader::number);
    TL_TRY_ASSIGN(newest_, whole_one(first, torn));
    if (!newest_) newest_ = &*last;
    return {};
  }

  // From the oldest needed group to the newest one.
  Status walk(Scan& out) {
    const auto& groups = headers_.groups;
    out.retired = newest_->retired;
    next_number_ = newest_->oldest_number;
    next_entry_ = newest_->retired;
    Place at = std::ranges::lower_bound(groups, next_number_, {}, &GroupHeader::number);
    while (at != groups.end() && at->number < end_number_) {
      const Place last = std::ranges::upper_bound(at, groups.end(), at->number, {}, &GroupHeader::number);
      TL_TRY_ASSIGN(const GroupHeader* found, whole_one(at, last));
      if (found && follows(out, *found)) {
        if (found->number > next_number_) add_damage(out, found->number, found->first_entry);
        out.groups.push_back(*found);
        next_number_ = found->number + 1;
        next_entry_ = found->end_entry();
      }
      at = last;
    }
    if (next_number_ < end_number_) add_damage(out, end_number_, end_entry_);
    return {};
  }

  // Whether the group can come after those that were found.
  bool follows(const Scan& out, const GroupHeader& h) const {
    if (h.end_entry() > end_entry_) return false;
    if (out.groups.empty() && h.number == newest_->oldest_number) return h.at == newest_->oldest;
    if (h.number > next_number_) return h.first_entry >= next_entry_;
    const GroupHeader& before = out.groups.back();
    if (h.retired < before.retired || h.oldest_number < before.oldest_number) return false;
    const Position end = end_of(shape_, before.at, before.bytes);
    return h.first_entry == next_entry_ && h.at == place_for(shape_, end, h.bytes);
  }

  void add_damage(Scan& out, std::uint64_t end_group, std::uint64_t end_entry) const {
    std::string which = end_group == next_number_ + 1
                            ? fmt::format("group {}", next_number_)
                            : fmt::format("groups {} to {}", next_number_, end_group - 1);
    if (!out.groups.empty()) {
      const GroupHeader& before = out.groups.back();
      which += fmt::format(", behind {},", to_text(end_of(shape_, before.at, before.bytes)));
    }
    out.damage.push_back({next_number_, end_group, next_entry_, end_entry,
                          fmt::format("{} cannot be read, although later groups exist", which)});
  }

  const LogShape shape_;
  const Uuid incarnation_;
  const SegmentReader& reader_;
  Aligned memory_{group_bytes_max};
  Headers headers_;
  std::uint64_t checked_bytes_ = 0;
  const GroupHeader* newest_ = nullptr;             // it may be damaged
  std::uint64_t end_number_ = 0, end_entry_ = 0;    // behind the newest group
  std::uint64_t next_number_ = 0, next_entry_ = 0;  // of the walk
};

}  // namespace

Result<Scan> scan(const LogShape& shape, const Uuid& incarnation, const SegmentReader& reader) {
  TL_TRY(check_shape(shape));
  return Scanner(shape, incarnation, reader).run();
}

Status check_mark(const Mark& mark, const Scan& scan) {
  if (mark.end() > scan.next_entry)
    return fail(
        Errc::conflict,
        "the mark says that entry {} is settled, and the log ends before entry {}: a part of the log is "
        "missing, or the mark is of a later log",
        mark.end() - 1, scan.next_entry);
  if (mark.prefix() < scan.retired)
    return fail(Errc::conflict,
                "the mark ends at entry {}, and the log has retired all entries before {}: the mark is older "
                "than the log",
                mark.prefix(), scan.retired);
  return {};
}

Position place_for(const LogShape& shape, Position end, std::size_t bytes) {
  TL_CHECK(bytes <= shape.segment_bytes && end.offset < shape.segment_bytes);
  if (end.offset + bytes <= shape.segment_bytes) return end;
  return {(end.segment + 1) % shape.segments, 0};
}

Position end_of(const LogShape& shape, Position at, std::size_t bytes) {
  TL_CHECK(at.offset + bytes <= shape.segment_bytes);
  if (at.offset + bytes < shape.segment_bytes) return {at.segment, at.offset + bytes};
  return {(at.segment + 1) % shape.segments, 0};
}

}  // namespace twinloft::intake_log
