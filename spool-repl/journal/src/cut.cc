#include "twinloft/spool-repl/journal/cut.h"

#include <algorithm>
#include <cstring>

#include "block_set.h"
#include "chain_walk.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::journal {

namespace {

Status check_usable(const Listing& listing, const std::string& name) {
  if (listing.damage) return fail(Errc::corrupt, "no cut is possible: {}", listing.damage->message);
  if (is_inconsistent(listing.superblock.disk))
    return fail(
        Errc::conflict,
        "{}: the replica is Inconsistent: a resync is unfinished, or its journal was damaged. Its data "
        "area does not match any LSN. Wait until the replica is consistent, or use another replica",
        name);
  return {};
}

Status check_same_journal(const Superblock& now, const Superblock& base, const std::string& name) {
  if (base.volume == now.volume && base.replica == now.replica && base.volume_blocks == now.volume_blocks &&
      base.ring_offset == now.ring_offset && base.ring_bytes == now.ring_bytes)
    return {};
  return fail(Errc::conflict,
              "{}: belongs to volume {} replica {}: it is not an earlier copy of the journal of volume {} "
              "replica {}",
              name, base.volume.text(), base.replica, now.volume.text(), now.replica);
}

// Copies blocks except zeros, so that the image stays sparse.
class ImageWriter {
 public:
  explicit ImageWriter(ports::BlockFile& out)
      : out_(out), buffer_(std::size_t{batch} * block_size), zero_(block_size) {}

  Result<std::uint64_t> copy(ports::BlockFile& from, std::uint64_t offset, std::uint64_t lba,
                             std::uint64_t blocks) {
    std::uint64_t copied = 0;
    for (std::uint64_t done = 0; done < blocks; done += batch) {
      std::uint64_t n = std::min<std::uint64_t>(batch, blocks - done);
      TL_TRY(from.read(offset + done * block_size, buffer_.span().first(n * block_size)));
      TL_TRY_ASSIGN(std::uint64_t written, write_non_zero(lba + done, n));
      copied += written;
    }
    return copied;
  }

 private:
  static constexpr std::uint64_t batch = 256;

  bool is_zero(std::uint64_t i) const {
    return std::memcmp(buffer_.span().data() + i * block_size, zero_.span().data(), block_size) == 0;
  }
  Result<std::uint64_t> write_non_zero(std::uint64_t lba, std::uint64_t n) {
    std::uint64_t written = 0;
    for (std::uint64_t i = 0; i < n;) {
      std::uint64_t end = i;
      while (end < n && !is_zero(end)) ++end;
      if (end > i)
        TL_TRY(out_.write((lba + i) * block_size,
                          buffer_.span().subspan(i * block_size, (end - i) * block_size)));
      written += end - i;
      i = end + (end < n);
    }
    return written;
  }

  ports::BlockFile& out_;
  AlignedBuffer buffer_, zero_;
};

}  // namespace

Result<History> History::open(ports::BlockFile& journal, ports::BlockFile& data) {
  TL_TRY_ASSIGN(Listing listing, list_journal(journal));
  TL_TRY(check_usable(listing, journal.name()));
  TL_TRY(check_data_area(listing.superblock, data));
  History history(listing.superblock);
  history.data_ = &data;
  history.record_file_.assign(listing.records.size(), &journal);
  history.records_ = std::move(listing.records);
  history.last_ = listing.last.lsn;
  history.commit_ = listing.commit;
  history.find_first(listing.last.lsn);
  return history;
}

Result<History> History::open(ports::BlockFile& journal, ports::BlockFile& base_journal,
                              ports::BlockFile& base_data) {
  TL_TRY_ASSIGN(Listing now, list_journal(journal));
  TL_TRY_ASSIGN(Listing base, list_journal(base_journal));
  TL_TRY(check_usable(base, base_journal.name()));
  TL_TRY(check_same_journal(now.superblock, base.superblock, base_journal.name()));
  TL_TRY(check_data_area(base.superblock, base_data));
  if (base.superblock.generation > now.superblock.generation)
    return fail(Errc::conflict, "{} is newer than {}: swap them", base_journal.name(), journal.name());
  History history(base.superblock);
  history.data_ = &base_data;
  TL_TRY_ASSIGN(Lsn end, history.follow(journal, now, base_journal, base));
  history.find_first(base.last.lsn);
  history.end_at(end);
  return history;
}

// The chain from the base's tail to the last certain record. Records of the present journal take precedence:
// if the log was cut in between, only they count.
Result<Lsn> History::follow(ports::BlockFile& journal, const Listing& now, ports::BlockFile& base_journal,
                            const Listing& base) {
  RingReader reader(journal, now.superblock), base_reader(base_journal, base.superblock);
  ChainWalk walk(base.superblock.tail_pos, base.superblock.tail);
  std::uint64_t base_end = base.superblock.tail_pos.v + base.superblock.ring_bytes;
  Lsn from_today = base.superblock.tail.lsn;
  while (walk.last() != now.last) {
    TL_TRY_ASSIGN(auto record, walk.next(reader, now.superblock, now.end.v));
    bool of_today = record.has_value();
    if (!of_today) {
      TL_TRY_ASSIGN(record, walk.next(base_reader, base.superblock, base_end));
    }
    if (!record) break;
    if (of_today) from_today = record->body.mark().lsn;
    record_file_.push_back(of_today ? &journal : &base_journal);
    records_.push_back(std::move(*record));
  }
  commit_ = std::max(now.commit, base.commit);
  if (walk.last() == now.last) return now.last.lsn;
  // Records of the base alone are not connected to the present journal. Of these, only records that were
  // committed are certain.
  gap_until_ = now.superblock.tail.lsn;
  return std::min(std::max(from_today, base.commit), walk.last().lsn);
}

void History::end_at(Lsn end) {
  std::size_t n = records_up_to(end);
  records_.erase(records_.begin() + static_cast<std::ptrdiff_t>(n), records_.end());
  record_file_.resize(n);
  last_ = n == 0 ? sb_.tail.lsn : records_.back().body.mark().lsn;
  commit_ = std::min(commit_, last_);
}

void History::find_first(Lsn maybe_home) {
  first_ = sb_.tail.lsn;
  BlockSet written;
  for (const ListedRecord& r : records_) {
    if (r.body.header.first_lsn > maybe_home) break;
    bool first_version = false;
    for (const Extent& e : r.body.extents)
      written.add(e.lba.v, e.blocks, [&](std::uint64_t, std::uint64_t) { first_version = true; });
    if (first_version) first_ = r.body.mark().lsn;
  }
}

std::size_t History::records_up_to(Lsn lsn) const {
  auto behind = std::upper_bound(records_.begin(), records_.end(), lsn,
                                 [](Lsn at, const ListedRecord& r) { return at < r.body.mark().lsn; });
  return static_cast<std::size_t>(behind - records_.begin());
}

Status History::check(Lsn lsn) const {
  if (first_ > last_)
    return fail(Errc::invalid,
                "LSN {}: no cut is possible with this base: its data area may have writes up to LSN {}, "
                "and the journal's ring has overwritten the records after LSN {}. Use a later base",
                lsn.v, first_.v, last_.v);
  if (lsn > last_ && gap_until_.v > 0)
    return fail(Errc::invalid,
                "LSN {}: the base allows cuts from LSN {} to {}: the journal's ring has overwritten the next "
                "records, up to LSN {}. Use a later base",
                lsn.v, first_.v, last_.v, gap_until_.v);
  if (lsn < first_)
    return fail(Errc::invalid,
                "LSN {}: cuts are possible from LSN {} to {}: the data area may already have writes after "
                "LSN {} in place of the earlier content. An earlier copy of data area and journal (--base, "
                "--base-journal) allows earlier cuts",
                lsn.v, first_.v, last_.v, lsn.v);
  if (lsn > last_)
    return fail(Errc::invalid, "LSN {}: the journal ends at LSN {}; cuts are possible from LSN {} to {}",
                lsn.v, last_.v, first_.v, last_.v);
  std::size_t n = records_up_to(lsn);
  Lsn before = n == 0 ? sb_.tail.lsn : records_[n - 1].body.mark().lsn;
  if (before != lsn)
    return fail(Errc::invalid, "LSN {} is within the record of LSN {} to {}: cut at {} or {}", lsn.v,
                before.v + 1, records_[n].body.mark().lsn.v, before.v, records_[n].body.mark().lsn.v);
  return {};
}

// Newest record first: the first record with a block has its content.
std::vector<Image::Piece> History::newest_pieces(std::size_t records) const {
  std::vector<Image::Piece> pieces;
  BlockSet claimed;
  for (std::size_t i = records; i > 0; --i) {
    const ListedRecord& r = records_[i - 1];
    std::uint64_t payload = sb_.ring_offset + r.frame.pos.v % sb_.ring_bytes +
                            std::uint64_t{meta_blocks_for(r.frame.meta_bytes)} * block_size;
    for (const Extent& e : r.body.extents) {
      bool data = e.kind == ExtentKind::data;
      claimed.add(e.lba.v, e.blocks, [&](std::uint64_t lba, std::uint64_t blocks) {
        pieces.push_back(
            {lba, blocks, data ? record_file_[i - 1] : nullptr, payload + (lba - e.lba.v) * block_size});
      });
      if (data) payload += std::uint64_t{e.blocks} * block_size;
    }
  }
  return pieces;
}

Result<Image> History::image(Lsn lsn) const {
  TL_TRY(check(lsn));
  return Image(*data_, home_map_of(sb_), newest_pieces(records_up_to(lsn)));
}

Result<CutReport> History::write_image(Lsn lsn, ports::BlockFile& out) const {
  TL_TRY_ASSIGN(Image from, image(lsn));
  if (out.size_bytes() < from.size_bytes())
    return fail(Errc::invalid, "{}: shorter than the volume", out.name());
  CutReport report{records_up_to(lsn), 0, 0};
  ImageWriter writer(out);
  TL_TRY(from.visit(0, sb_.volume_blocks, [&](const Image::Run& run) -> Status {
    if (!run.file) return {};
    TL_TRY_ASSIGN(std::uint64_t n, writer.copy(*run.file, run.offset, run.lba, run.blocks));
    (run.from_journal ? report.blocks_from_journal : report.blocks_from_data) += n;
    return {};
  }));
  return report;
}

}  // namespace twinloft::repl::journal
