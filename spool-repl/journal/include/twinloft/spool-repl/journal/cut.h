// The volume as it was right after an LSN: what the data area holds, and the records of the journal up to
// there.
//
// The data area is not a state of its own. Everything up to the journal's tail is in it for certain, and of
// what was written between the tail and the journal's end each block may be in it or not: the checkpointer
// was on its way, and does not write down how far it came. So a cut at LSN is exact if every block that was
// written between LSN and the end was written between the tail and LSN as well, since then the journal holds
// the content to put in its place. The earliest such LSN is first(); all record ends from there to last() can
// be cut.
//
// A copy of data area and journal from earlier (the base) allows earlier cuts: the same rule with the base's
// tail and end, and the chain followed on from there through the journal of today, as far as the ring has not
// been written over.
//
// Nothing is written but the image. The files must not be served while they are read; copies and snapshots of
// both files of one moment are fine, also those of a power cut.
#pragma once

#include <vector>

#include "twinloft/spool-repl/journal/image.h"
#include "twinloft/spool-repl/journal/listing.h"

namespace twinloft::repl::journal {

struct CutReport {
  std::uint64_t records = 0;              // applied on top of the data area
  std::uint64_t blocks_from_journal = 0;  // blocks of the image that came from the journal; without zeros
  std::uint64_t blocks_from_data = 0;     // the same for the data area
};

class History {
 public:
  // Errc::corrupt where the journal is damaged, Errc::conflict where the files do not belong together or the
  // replica is Inconsistent, each with the reason. The files must outlive the history.
  static Result<History> open(ports::BlockFile& journal, ports::BlockFile& data);
  static Result<History> open(ports::BlockFile& journal, ports::BlockFile& base_journal,
                              ports::BlockFile& base_data);

  Lsn first() const { return first_; }
  Lsn last() const { return last_; }
  Lsn commit() const { return commit_; }  // highest LSN known committed, at most last()
  const Superblock& superblock() const { return sb_; }
  const std::vector<ListedRecord>& records() const { return records_; }

  // Errc::invalid, naming what is possible, for an LSN outside of [first(), last()] or within a record.
  Status check(Lsn lsn) const;
  Result<Image> image(Lsn lsn) const;
  // `out` has the volume's size, and reads as zeros.
  Result<CutReport> write_image(Lsn lsn, ports::BlockFile& out) const;

 private:
  explicit History(Superblock sb) : sb_(std::move(sb)) {}
  Result<Lsn> follow(ports::BlockFile& journal, const Listing& now, ports::BlockFile& base_journal,
                     const Listing& base);
  void find_first(Lsn maybe_home);
  void end_at(Lsn end);
  std::size_t records_up_to(Lsn lsn) const;
  std::vector<Image::Piece> newest_pieces(std::size_t records) const;

  Superblock sb_;  // of the base, where there is one
  ports::BlockFile* data_ = nullptr;
  std::vector<ListedRecord> records_;           // behind the tail of sb_
  std::vector<ports::BlockFile*> record_file_;  // where each lies
  Lsn first_, last_, commit_;
  Lsn gap_until_;  // not 0: between last() and here the ring was written over
};

}  // namespace twinloft::repl::journal
