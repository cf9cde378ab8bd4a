// Reading whole records from the ring; for recovery and for the tools that look at a journal.
#pragma once

#include <algorithm>
#include <optional>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// Reads the ring in pieces that slide forward with the scan; a larger record is a piece of its own.
class RingReader {
 public:
  RingReader(ports::BlockFile& file, const Superblock& sb) : file_(file), sb_(sb), buffer_(piece) {}

  void forget() { have_ = 0; }  // what was read: the next call reads anew

  // `bytes` at a physical offset of the ring; valid until the next call. They must not cross the ring's end.
  Result<ByteSpan> read(std::uint64_t at, std::uint64_t bytes) {
    TL_CHECK(at + bytes <= sb_.ring_bytes);
    if (at < start_ || at + bytes > start_ + have_) {
      start_ = at;
      have_ = 0;
      if (bytes > buffer_.span().size()) buffer_ = AlignedBuffer(bytes);
      std::uint64_t n = std::min<std::uint64_t>(buffer_.span().size(), sb_.ring_bytes - at);
      // One bad sector makes the piece unreadable, not all that is in it.
      if (!file_.read(sb_.ring_offset + at, buffer_.span().first(n))) {
        n = bytes;
        TL_TRY(file_.read(sb_.ring_offset + at, buffer_.span().first(n)));
      }
      have_ = n;
    }
    return ByteSpan(buffer_.span()).subspan(at - start_, bytes);
  }

 private:
  static constexpr std::uint64_t piece = 512u << 10;  // stays in a processor's cache
  ports::BlockFile& file_;
  const Superblock& sb_;
  AlignedBuffer buffer_;
  std::uint64_t start_ = 0, have_ = 0;
};

struct RecordAt {
  FrameHeader frame;
  Body body;
  ByteSpan meta, payload;  // in the reader's memory
};

// The record at `pos`, if it is whole, of this journal and chained to `last`. Errc::invalid where it is
// intact and needs what this release does not have.
Result<std::optional<RecordAt>> read_record(RingReader& reader, const Superblock& sb, JournalPos pos,
                                            const LogMark& last);

// Belongs to a tail that was cut off: what was cut never comes back.
inline bool is_cut_off(const Superblock& sb, const FrameHeader& frame, const Body& body) {
  return frame.incarnation < sb.cut_incarnation && body.header.first_lsn > sb.cut_lsn;
}

}  // namespace twinloft::repl::journal
