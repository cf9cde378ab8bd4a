// Reads whole records from the ring, for recovery and the offline tools.
#pragma once

#include <algorithm>
#include <optional>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/format/record.h"
#include "twinloft/spool-repl/format/superblock.h"
#include "twinloft/spool-repl/journal/aligned.h"
#include "twinloft/spool-repl/ports/block_file.h"

namespace twinloft::repl::journal {

// Reads the ring in pieces, which advance with the scan. A larger record is a piece of its own.
class RingReader {
 public:
  RingReader(ports::BlockFile& file, const Superblock& sb) : file_(file), sb_(sb), buffer_(piece) {}

  void forget() { have_ = 0; }  // the next call reads again

  // Reads `bytes` at an offset of the ring, not beyond its end. The result is valid until the next call.
  Result<ByteSpan> read(std::uint64_t at, std::uint64_t bytes) {
    TL_CHECK(at + bytes <= sb_.ring_bytes);
    if (at < start_ || at + bytes > start_ + have_) {
      start_ = at;
      have_ = 0;
      if (bytes > buffer_.span().size()) buffer_ = AlignedBuffer(bytes);
      std::uint64_t n = std::min<std::uint64_t>(buffer_.span().size(), sb_.ring_bytes - at);
      // A bad sector makes the piece unreadable, but not all of its records.
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

// The record at `pos`, if it is whole, of this journal, and chained to `last`. Errors: Errc::invalid for an
// intact record that needs features of a later release.
Result<std::optional<RecordAt>> read_record(RingReader& reader, const Superblock& sb, JournalPos pos,
                                            const LogMark& last);

// Whether the record belongs to a tail that was cut off, and must not come back.
inline bool is_cut_off(const Superblock& sb, const FrameHeader& frame, const Body& body) {
  return frame.incarnation < sb.cut_incarnation && body.header.first_lsn > sb.cut_lsn;
}

}  // namespace twinloft::repl::journal
