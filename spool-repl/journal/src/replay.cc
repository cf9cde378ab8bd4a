#include "replay.h"

#include <algorithm>
#include <vector>

#include "newest_runs.h"
#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::journal {

namespace {

constexpr std::uint64_t batch_blocks = 4096;    // 16 MiB of memory at most, twice
constexpr std::uint64_t transfer_blocks = 256;  // of a read or write of several runs
constexpr std::uint64_t gap_blocks_max = 16;    // that are read too, to avoid another read

using Piece = ports::BlockFile::Piece;

std::uint64_t end_of(const Piece& p) {
  return p.offset + p.memory.size();
}

// Compares the content with the CRCs from the scan. It was read a second time, and no later step checks it
// before it is used and written home.
Status check_content(const RecoveredLog& log, const Run& r, const std::byte* content) {
  const Body& body = log.records[r.record].body;
  for (std::uint64_t b = 0; b < r.blocks; ++b)
    if (block_crc(log.superblock.volume, Lba{r.lba + b}, {content + b * block_size, block_size}) !=
        body.block_crc[r.payload + b])
      return fail(
          Errc::io,
          "the journal at offset {} was intact, but a second read gave other content (block {} of the "
          "record that ends at LSN {})",
          r.offset + b * block_size, r.payload + b, body.mark().lsn.v);
  return {};
}

// Writes runs home, and the runs of a batch in order of address.
class HomeWriter {
 public:
  HomeWriter(ports::BlockFile& journal, ports::BlockFile& data, RecoveredLog& log)
      : journal_(journal), data_(data), log_(log) {}

  Status put(std::span<const Run> runs) {
    std::uint64_t blocks = 0;
    for (const Run& r : runs) blocks += r.zeros ? 0 : r.blocks;
    if (runs.empty()) return {};
    read_ = AlignedBuffer(std::clamp<std::uint64_t>(blocks * (1 + gap_blocks_max), 1, batch_blocks) *
                          block_size);
    sorted_ = AlignedBuffer(std::clamp<std::uint64_t>(blocks, 1, batch_blocks) * block_size);
    for (const Run& r : runs) {
      if (r.zeros || read_blocks_ + gap_blocks_max + r.blocks > batch_blocks) TL_TRY(copy_batch());
      if (r.zeros)
        TL_TRY(clear(r));
      else
        add(r);
    }
    TL_TRY(copy_batch());
    written_ = blocks;
    return data_.sync();
  }
  std::uint64_t written() const { return written_; }  // blocks

 private:
  struct Placed {
    const Run* run;
    std::uint64_t at;  // in read_, blocks
  };

  // Reads the journal from front to back, with the gaps.
  void add(const Run& r) {
    std::uint64_t gap = reads_.empty() || r.offset < end_of(reads_.back())
                            ? UINT64_MAX
                            : (r.offset - end_of(reads_.back())) / block_size;
    bool joins = gap <= gap_blocks_max &&
                 reads_.back().memory.size() / block_size + gap + r.blocks <= transfer_blocks;
    if (!joins) reads_.push_back({r.offset, read_.span().subspan(read_blocks_ * block_size, 0)}), gap = 0;
    read_blocks_ += gap;
    batch_.push_back({&r, read_blocks_});
    read_blocks_ += r.blocks;
    MutableByteSpan& memory = reads_.back().memory;
    memory = {memory.data(), memory.size() + (gap + r.blocks) * block_size};
  }

  // Each block occurs once, so blocks that are adjacent on the volume are written together.
  Status copy_batch() {
    TL_TRY(journal_.read_all(reads_));
    std::sort(batch_.begin(), batch_.end(),
              [](const Placed& a, const Placed& b) { return a.run->lba < b.run->lba; });
    std::byte* to = sorted_.span().data();
    for (const Placed& p : batch_) {
      std::memcpy(to, read_.span().data() + p.at * block_size, p.run->blocks * block_size);
      TL_TRY(check_content(log_, *p.run, to));
      write(*p.run, {to, p.run->blocks * block_size});
      to += p.run->blocks * block_size;
    }
    TL_TRY(data_.write_all(writes_));
    batch_.clear();
    reads_.clear();
    writes_.clear();
    read_blocks_ = 0;
    return {};
  }

  void write(const Run& r, MutableByteSpan content) {
    for (std::uint64_t b = 0; b < r.blocks; ++b)
      log_.digests.put(Lba{r.lba + b}, content.data() + b * block_size);
    log_.home_map.each_extent(Lba{r.lba}, r.blocks, [&](const HomeExtent& e) {
      write(e, content.subspan((e.lba.v - r.lba) * block_size, e.blocks * block_size));
    });
  }

  void write(const HomeExtent& e, MutableByteSpan content) {
    bool joins = !writes_.empty() && end_of(writes_.back()) == e.at.bytes() &&
                 writes_.back().memory.data() + writes_.back().memory.size() == content.data() &&
                 writes_.back().memory.size() + content.size() <= transfer_blocks * block_size;
    if (joins)
      writes_.back().memory = {writes_.back().memory.data(), writes_.back().memory.size() + content.size()};
    else
      writes_.push_back({e.at.bytes(), content});
  }

  Status clear(const Run& r) {
    log_.digests.put_zeros(Lba{r.lba}, r.blocks);
    for (const HomeExtent& e : log_.home_map.extents(Lba{r.lba}, r.blocks))
      TL_TRY(data_.write_zeros(e.at.bytes(), e.blocks * block_size));
    return {};
  }

  ports::BlockFile& journal_;
  ports::BlockFile& data_;
  RecoveredLog& log_;
  AlignedBuffer read_{block_size}, sorted_{block_size};  // a batch in the journal's order, and by address
  std::vector<Placed> batch_;
  std::vector<Piece> reads_, writes_;
  std::uint64_t read_blocks_ = 0, written_ = 0;
};

// Loads the blocks of the runs into `room`, in the journal's order.
Result<std::vector<LoadedBlock>> load(ports::BlockFile& journal, std::span<const Run> runs,
                                      const RecoveredLog& log, MutableByteSpan room) {
  std::vector<LoadedBlock> loaded;
  std::vector<Piece> reads;
  for (const Run& r : runs) {
    if (r.zeros) continue;
    MutableByteSpan memory = room.subspan(loaded.size() * block_size, r.blocks * block_size);
    bool joins = !reads.empty() && end_of(reads.back()) == r.offset &&
                 reads.back().memory.size() + memory.size() <= transfer_blocks * block_size;
    if (joins)
      reads.back().memory = {reads.back().memory.data(), reads.back().memory.size() + memory.size()};
    else
      reads.push_back({r.offset, memory});
    for (std::uint64_t b = 0; b < r.blocks; ++b)
      loaded.push_back({Lba{r.lba + b}, log.records[r.record].body.mark().lsn});
  }
  TL_TRY(journal.read_all(reads));
  const std::byte* at = room.data();
  for (const Run& r : runs) {
    if (r.zeros) continue;
    TL_TRY(check_content(log, r, at));
    at += r.blocks * block_size;
  }
  return loaded;
}

// The blocks of memory that the core needs for records that are not known to be committed.
std::uint64_t uncommitted_blocks(const RecoveredLog& log) {
  std::uint64_t blocks = 0;
  for (const StoredRecord& r : log.records)
    if (r.body.mark().lsn > log.commit) blocks += r.total_blocks;
  return blocks;
}

// The index of the first run that is loaded: as many of the newest whole records as fit. A zero extent needs
// memory too.
std::size_t first_loaded(const std::vector<Run>& runs, std::uint64_t room) {
  std::size_t first = runs.size();
  for (std::uint64_t taken = 0; first > 0;) {
    std::size_t begin = first;
    for (; begin > 0 && runs[begin - 1].record == runs[first - 1].record; --begin)
      taken += runs[begin - 1].zeros ? 1 : runs[begin - 1].blocks;
    if (taken > room) break;
    first = begin;
  }
  return first;
}

}  // namespace

Result<std::uint64_t> replay(ports::BlockFile& journal, ports::BlockFile& data, RecoveredLog& scan,
                             MutableByteSpan room) {
  std::vector<Run> runs = newest_runs(scan);
  std::uint64_t reserved = uncommitted_blocks(scan), blocks = room.size() / block_size;
  std::size_t first = first_loaded(runs, blocks - std::min(blocks, reserved));
  std::span<const Run> all(runs);
  HomeWriter home(journal, data, scan);
  TL_TRY(home.put(all.first(first)));
  TL_TRY_ASSIGN(scan.loaded, load(journal, all.subspan(first), scan, room));
  if (first == runs.size())
    scan.home = scan.commit;
  else
    scan.home = first == 0 ? scan.superblock.tail.lsn : scan.records[runs[first - 1].record].body.mark().lsn;
  return home.written();
}

}  // namespace twinloft::repl::journal
