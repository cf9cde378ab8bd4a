// The input of a PackedStream: the stream below -> frames -> content.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "twinloft/spool-repl/compress/frame.h"
#include "twinloft/spool-repl/stream/packed_stream.h"

namespace twinloft::repl::stream {

// A frame that cannot be passed on as it comes: it is compressed, or one before it is.
struct InFrame final : Work {
  compress::FrameHeader header;
  std::vector<std::byte> packed, raw;
  std::size_t arrived = 0;  // of `packed`
  Status unpacked;
  std::size_t memory() const { return header.raw_bytes + header.packed_bytes + overhead; }
  static constexpr std::size_t overhead = 512;  // at least, of a frame in memory
  bool done = false;                            // of the link's thread
  std::size_t given = 0;                        // of `raw`, to the owner

  void run(compress::Coder& coder) override;
};

class FrameReader {
 public:
  // received: the first bytes, which were read already.
  FrameReader(Stream& below, std::shared_ptr<WorkPool> pool, std::shared_ptr<DoneWork> done,
              compress::CodecSet accepted, std::size_t undecoded_bytes, ByteSpan received);

  void set_link(LinkClass link) { link_ = link; }
  // As Stream::read(). Errors: also those of a frame.
  Result<Stream::Got> read(std::span<const iovec> into);
  void take(InFrame& frame) { frame.done = true; }  // that a pool had
  // Whether the stream below should be read.
  bool wants_input() const { return has_room() && !ended_; }
  // The stream below has something to read. It may say so once.
  void note_ready() { below_ready_ = true; }
  // Whether read() returns something without the stream below.
  bool has_input() const;
  void tell(PackingStatus& status) const;
  std::uint64_t line_bytes() const { return line_bytes_; }
  bool is_decoding() const { return !frames_.empty() && !frames_.front()->done; }

 private:
  bool has_room() const { return waiting_bytes_ < undecoded_max_ && !wrong_; }
  using Place = std::span<const iovec>;
  Status give(Place into, std::size_t& given);
  Status give_to(const iovec& into, std::size_t& given);
  Status fill(Place into, std::size_t& given);
  Status fill_by_guess(const iovec& into, std::size_t& given);
  bool parse_step();
  void close_frame();
  std::size_t waiting() const { return in_end_ - in_begin_; }
  std::size_t move(std::byte* to, std::size_t bytes_max);

  Stream& below_;
  std::shared_ptr<WorkPool> pool_;
  std::shared_ptr<DoneWork> done_;
  compress::CodecSet accepted_;
  std::size_t undecoded_max_;
  LinkClass link_ = LinkClass::latency;
  std::vector<std::byte> in_;  // not parsed
  std::size_t in_begin_ = 0, in_end_ = 0;
  std::size_t plain_left_ = 0;                   // of a frame that is passed on as it comes
  std::shared_ptr<InFrame> filling_;             // it has not arrived completely
  std::deque<std::shared_ptr<InFrame>> frames_;  // in order, complete
  std::size_t waiting_bytes_ = 0;                // memory of these
  bool below_ready_ = true;
  bool ended_ = false, end_told_ = false;  // the stream below
  std::optional<Error> wrong_;             // a header, behind the content of these frames
  std::uint64_t raw_bytes_ = 0, line_bytes_ = 0;
};

}  // namespace twinloft::repl::stream
