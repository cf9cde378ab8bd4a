#include "replay.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_set.hpp>
#include <vector>

#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::journal {

namespace {

constexpr std::uint64_t batch_blocks = 4096;     // 16 MiB of memory at most
constexpr std::uint64_t transfer_blocks = 256;  // of one read or write

class Replay {
 public:
  Replay(ports::BlockFile& journal, ports::BlockFile& data, RecoveredLog& scan)
      : journal_(journal), data_(data), scan_(scan) {}

  Result<std::uint64_t> run() {
    for (std::size_t i = scan_.records.size(); i > 0; --i) {
      const StoredRecord& r = scan_.records[i - 1];
      if (r.body.mark().lsn <= scan_.commit) claim(r);
    }
    buffer_ = AlignedBuffer(std::clamp<std::uint64_t>(blocks_, 1, batch_blocks) * block_size);
    // Oldest first: a zero extent is written whole, after older data within it and before newer.
    std::reverse(work_.begin(), work_.end());
    for (const Work& w : work_) {
      if (w.zeros || batched_ + w.blocks > batch_blocks) TL_TRY(copy_batch());
      if (w.zeros) TL_TRY(clear(w));
      else batch_.push_back(w), batched_ += w.blocks;
    }
    TL_TRY(copy_batch());
    if (!work_.empty()) TL_TRY(data_.sync());
    return blocks_;
  }

 private:
  struct Work {
    std::uint64_t lba, blocks, journal_offset;
    bool zeros;
  };

  void claim(const StoredRecord& r) {
    std::uint64_t at = scan_.superblock.ring_offset + r.pos.v % scan_.superblock.ring_bytes +
                       std::uint64_t{meta_blocks_for(r.meta_bytes)} * block_size;
    std::uint64_t payload = r.body.header.payload_blocks;
    for (std::size_t i = r.body.extents.size(); i > 0; --i) {
      const Extent& e = r.body.extents[i - 1];
      if (e.kind == ExtentKind::zeros) {
        work_.push_back({e.lba.v, e.blocks, 0, true});
        continue;
      }
      payload -= e.blocks;
      for (std::uint32_t b = e.blocks; b > 0; --b) claim_block(e.lba.v + b - 1, at + (payload + b - 1) * block_size);
    }
  }

  // Walking backwards: a run grows at its front.
  void claim_block(std::uint64_t lba, std::uint64_t from) {
    if (!seen_.insert(lba).second) return;
    blocks_++;
    bool joins = !work_.empty() && !work_.back().zeros && work_.back().lba == lba + 1 &&
                 work_.back().journal_offset == from + block_size && work_.back().blocks < transfer_blocks;
    if (!joins) return work_.push_back({lba, 1, from, false});
    work_.back().lba--;
    work_.back().journal_offset = from;
    work_.back().blocks++;
  }

  // No block is in it twice: in order of address what lies side by side there is written together, from wherever in the journal.
  Status copy_batch() {
    std::sort(batch_.begin(), batch_.end(), [](const Work& a, const Work& b) { return a.lba < b.lba; });
    reads_.clear();
    writes_.clear();
    std::uint64_t at = 0;
    for (const Work& w : batch_) {
      MutableByteSpan memory = buffer_.span().subspan(at * block_size, w.blocks * block_size);
      reads_.push_back({w.journal_offset, memory});
      bool joins = !writes_.empty() && writes_.back().offset + writes_.back().memory.size() == w.lba * block_size &&
                   writes_.back().memory.size() + memory.size() <= transfer_blocks * block_size;
      if (joins) writes_.back().memory = {writes_.back().memory.data(), writes_.back().memory.size() + memory.size()};
      else writes_.push_back({w.lba * block_size, memory});
      at += w.blocks;
    }
    TL_TRY(journal_.read_all(reads_));
    at = 0;
    for (const Work& w : batch_)
      for (std::uint64_t b = 0; b < w.blocks; ++b) scan_.digests.put(Lba{w.lba + b}, buffer_.span().data() + at++ * block_size);
    TL_TRY(data_.write_all(writes_));
    batch_.clear();
    batched_ = 0;
    return {};
  }

  Status clear(const Work& w) {
    scan_.digests.put_zeros(Lba{w.lba}, w.blocks);
    return data_.write_zeros(w.lba * block_size, w.blocks * block_size);
  }

  ports::BlockFile& journal_;
  ports::BlockFile& data_;
  RecoveredLog& scan_;
  AlignedBuffer buffer_{block_size};  // of a batch
  boost::unordered_flat_set<std::uint64_t> seen_;
  std::vector<Work> work_, batch_;
  std::uint64_t batched_ = 0, blocks_ = 0;  // blocks
  std::vector<ports::BlockFile::Piece> reads_, writes_;
};

}  // namespace

Result<std::uint64_t> replay(ports::BlockFile& journal, ports::BlockFile& data, RecoveredLog& scan) {
  return Replay(journal, data, scan).run();
}

}  // namespace twinloft::repl::journal
