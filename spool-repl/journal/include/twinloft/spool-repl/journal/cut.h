// The content of a volume right after an LSN (a cut), from the data area and the records of the journal.
//
// The data area contains every write up to the journal's tail. Of the writes between the tail and the
// journal's end, each block may be in it or not, since the checkpointer does not record its progress. So a
// cut at an LSN is exact if every block that was written after the LSN was also written between the tail and
// the LSN: the journal then has its content. The earliest such LSN is first(). Every end of a record from
// first() to last() can be cut.
//
// An earlier copy of data area and journal (the base) allows earlier cuts. The same rule applies with the
// tail and the end of the base, and the chain continues in the present journal, as far as the ring has not
// been overwritten.
//
// Only the image is written. The files must not be served meanwhile. Copies or snapshots of both files from
// the same moment can be used, also those of a power cut.
#pragma once

#include <vector>

#include "twinloft/spool-repl/journal/image.h"
#include "twinloft/spool-repl/journal/listing.h"

namespace twinloft::repl::journal {

struct CutReport {
  std::uint64_t records = 0;              // that were applied over the data area
  std::uint64_t blocks_from_journal = 0;  // blocks of the image from the journal, without zeros
  std::uint64_t blocks_from_data = 0;     // blocks of the image from the data area, without zeros
};

class History {
 public:
  // Errors: Errc::corrupt (the journal is damaged), Errc::conflict (the files do not belong together, or the
  // replica is Inconsistent). The files must outlive the history.
  static Result<History> open(ports::BlockFile& journal, ports::BlockFile& data);
  static Result<History> open(ports::BlockFile& journal, ports::BlockFile& base_journal,
                              ports::BlockFile& base_data);

  Lsn first() const { return first_; }
  Lsn last() const { return last_; }
  Lsn commit() const { return commit_; }  // the highest LSN that is known to be committed, at most last()
  const Superblock& superblock() const { return sb_; }
  const std::vector<ListedRecord>& records() const { return records_; }

  // Whether the LSN can be cut. Errors: Errc::invalid with the possible LSNs, for an LSN outside of [first(),
  // last()] or within a record.
  Status check(Lsn lsn) const;
  Result<Image> image(Lsn lsn) const;
  // out: of the volume's size, reads as zeros.
  Result<CutReport> write_image(Lsn lsn, ports::BlockFile& out) const;

 private:
  explicit History(Superblock sb) : sb_(std::move(sb)) {}
  Result<Lsn> follow(ports::BlockFile& journal, const Listing& now, ports::BlockFile& base_journal,
                     const Listing& base);
  void find_first(Lsn maybe_home);
  void end_at(Lsn end);
  std::size_t records_up_to(Lsn lsn) const;
  std::vector<Image::Piece> newest_pieces(std::size_t records) const;

  Superblock sb_;  // of the base, if there is one
  ports::BlockFile* data_ = nullptr;
  std::vector<ListedRecord> records_;           // after the tail of sb_
  std::vector<ports::BlockFile*> record_file_;  // the file of each record
  Lsn first_, last_, commit_;
  Lsn gap_until_;  // not 0: the records from last() to here are overwritten
};

}  // namespace twinloft::repl::journal
