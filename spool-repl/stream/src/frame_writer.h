// The output of a PackedStream: content -> frames -> the stream below.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "twinloft/spool-repl/compress/chooser.h"
#include "twinloft/spool-repl/compress/frame.h"
#include "twinloft/spool-repl/stream/packed_stream.h"

namespace twinloft::repl::stream {

// A frame of the output, from its content to what the line gets.
struct OutFrame final : Work {
  compress::Method method;
  std::vector<std::byte> raw;
  std::vector<std::byte> packed;
  std::size_t packed_bytes = 0;  // 0: the content goes as it is
  Duration time{0};              // that a thread took
  // Of the link's thread. hurried: the content goes as it is, whatever a thread does.
  bool done = false, hurried = false;
  std::atomic<bool> is_late{false};  // a thread need not begin
  bool is_packed() const { return done && !hurried && packed_bytes > 0; }

  void run(compress::Coder& coder) override;
};

// The rate of the line, from one write that the stream below has accepted a part of, to the next: the line
// was full at both ends. A time in which nothing was there to send does not count.
class LineMeter {
 public:
  void note(std::size_t bytes, bool full, Instant now, compress::Chooser& chooser);
  // The line has room, and nothing is there to send.
  void note_room(Instant now);

 private:
  bool measures_ = false;
  Instant since_;  // the last time that it was full
  std::uint64_t since_bytes_ = 0;
  std::optional<Instant> room_since_;
  std::uint64_t bytes_ = 0;
  Duration time_{0};
};

// Two frames for each thread at least.
std::uint64_t unsent_bytes_max(std::uint64_t unsent_bytes, unsigned threads);

class FrameWriter {
 public:
  // before: bytes that are sent before the first frame.
  FrameWriter(ports::Loop& loop, Stream& below, std::shared_ptr<WorkPool> pool,
              std::shared_ptr<DoneWork> done, compress::CodecSet allowed, std::size_t unsent_bytes,
              ByteSpan before);

  void set_packing(const Packing& packing);
  void set_shaping(const Shaping& shaping);
  // As Stream::write().
  Result<std::size_t> write(std::span<iovec> from);
  // A frame that a pool had.
  void take(OutFrame& frame);
  // Sends what the stream below takes. After take(), and when the stream below is writable.
  Status pump();
  // The next frame goes as it is, if a pool still has it: the other side waits for a sign of life.
  Status hurry();
  // Sends all that is left, without waiting for a pool. For the end.
  void send_uncompressed();
  bool has_room() const { return out_raw_ + open_.size() < unsent_max_ && !is_blocked(); }
  bool is_empty() const { return rest_.empty() && out_.empty() && open_.empty(); }
  bool waits_for_line() const { return waits_for_ == WaitsFor::line; }
  bool is_blocked() const { return waits_for_ != WaitsFor::nothing; }
  // Until the bandwidth allows more. Nothing: it does not hold anything up.
  std::optional<Duration> waits_for_bandwidth();
  void tell(PackingStatus& status) const;
  std::uint64_t line_bytes() const { return line_bytes_; }

 private:
  compress::Method choose(std::size_t raw);
  Result<std::size_t> write_at_once(std::span<const iovec> from, std::size_t bytes);
  void collect(const iovec& from, std::size_t& accepted);
  void close_frame();
  bool may_close() const;
  std::size_t in_pool_max() const;
  Status send_rest();
  Status send_front();
  std::uint64_t allowed(Instant now);
  // Returns the accepted bytes of line_.
  Result<std::size_t> send();
  void keep(std::size_t begin, std::size_t end);  // of line_

  ports::Loop& loop_;
  Stream& below_;
  std::shared_ptr<WorkPool> pool_;
  std::shared_ptr<DoneWork> done_;
  compress::CodecSet allowed_;
  std::size_t unsent_max_;
  Packing packing_;
  TokenBucket bucket_;
  TokenBucket least_;  // for a link that all others leave nothing
  std::shared_ptr<SharedBandwidth> shared_;
  bool ends_ = false;  // without a limit
  compress::Chooser chooser_;
  LineMeter meter_;
  // line: the stream below has accepted a part, and will be writable.
  enum class WaitsFor { nothing, line, bandwidth } waits_for_ = WaitsFor::nothing;
  std::optional<compress::Method> next_;  // of the next frame
  std::vector<std::byte> open_;           // content of the next frame
  std::deque<std::shared_ptr<OutFrame>> out_;
  std::size_t out_raw_ = 0;          // content of these
  std::size_t in_pool_ = 0;          // of these
  std::vector<std::byte> rest_;      // of a frame that the stream below has accepted a part of
  std::vector<iovec> line_, given_;  // of one call; `given_` may be changed by it
  std::vector<std::array<std::byte, compress::header_bytes>> headers_;
  std::uint64_t raw_bytes_ = 0, line_bytes_ = 0;
};

}  // namespace twinloft::repl::stream
