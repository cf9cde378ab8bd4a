// Frames over another stream, each compressed or not. docs/formats/wire.md has them.
//
// At first, bytes pass as they are. From begin_frames() on, both directions consist of frames. A pool
// compresses and decompresses them, and the order stays. Small frames, and those without a codec, go out at
// once, unless others are before them.
//
// Memory: packed_stream_bytes_max().
#pragma once

#include <memory>
#include <optional>

#include "twinloft/spool-repl/compress/setting.h"
#include "twinloft/spool-repl/ports/loop.h"
#include "twinloft/spool-repl/stream/bandwidth.h"
#include "twinloft/spool-repl/stream/stream.h"
#include "twinloft/spool-repl/stream/work_pool.h"

namespace twinloft::repl::stream {

class FrameReader;
class FrameWriter;

struct Packing {
  compress::Setting setting;
  LinkClass link = LinkClass::latency;
};

struct Shaping {
  Rate rate;                                  // of this link
  std::shared_ptr<SharedBandwidth> all = {};  // of all links of the process; null: no limit
};

// Since begin_frames().
struct PackingStatus {
  compress::Codec codec = compress::Codec::none;  // in use by this side
  bool peer_lacks_codec = false;                  // the set codec. Then nothing is compressed
  std::uint64_t out_raw = 0, out_line = 0;        // bytes of content; bytes to the stream below
  std::uint64_t in_raw = 0, in_line = 0;
  std::optional<double> line_rate;  // bytes a second, of a time in which the line was full
};

// The most that the streams of a link hold, of a pool with so many threads.
std::uint64_t packed_stream_bytes_max(unsigned threads);

class PackedStream final : public Stream {
 public:
  struct Limits {
    std::size_t unsent_bytes = 2 << 20;     // of content, that a pool has or that wait behind it
    std::size_t undecoded_bytes = 2 << 20;  // with more, nothing is read
  };

  // pool: null, if nothing is ever compressed in either direction.
  PackedStream(ports::Loop& loop, std::unique_ptr<Stream> below, std::shared_ptr<WorkPool> pool,
               Limits limits);
  PackedStream(ports::Loop& loop, std::unique_ptr<Stream> below, std::shared_ptr<WorkPool> pool)
      : PackedStream(loop, std::move(below), std::move(pool), Limits()) {}
  ~PackedStream() override;

  // accepted: codecs that the other side may use, since this side has offered them. allowed: those that the
  // other side has offered. received: bytes behind the last one without a frame, which were read already.
  // unsent: bytes before the first frame, which were not accepted yet. Errors: no descriptor is left.
  Status begin_frames(compress::CodecSet accepted, compress::CodecSet allowed, ByteSpan received,
                      ByteSpan unsent = {});
  bool has_frames() const { return writer_ != nullptr; }
  // For later output. At first nothing is compressed.
  void set_packing(const Packing& packing);
  // For later output. A link of the class `latency` does not wait for the bandwidth of all links.
  void set_shaping(const Shaping& shaping);
  PackingStatus packing_status() const;
  // Bytes from the stream below, also of frames that have not arrived completely.
  std::uint64_t line_bytes_received() const;
  std::uint64_t line_bytes_sent() const;
  bool is_decoding() const;  // a pool has content that has arrived
  // Something is sent soon, also if a pool does not come to its frames: the next one goes as it is.
  void hurry();
  const Stream& below() const { return *below_; }
  Stream& below() { return *below_; }

  void start(unsigned interest, Events events) override;
  State state() const override { return below_->state(); }
  void want(unsigned interest) override;
  void set_events(Events events) override { events_ = std::move(events); }
  Result<Got> read(std::span<const iovec> into) override;
  Result<std::size_t> write(std::span<iovec> from) override;
  void end_output() override;
  // Frames that are being compressed are sent as they are.
  void close() override;
  bool is_stuck() const override { return below_->is_stuck(); }
  bool has_unsent() const override;

 private:
  void on_ready(unsigned ready);
  void on_done();
  void tell(unsigned ready);
  void call_again();
  void watch_below();
  void wait_for_bandwidth();
  Result<Got> checked(Result<Got> got);

  ports::Loop& loop_;
  std::unique_ptr<Stream> below_;
  std::shared_ptr<WorkPool> pool_;
  std::shared_ptr<DoneWork> done_;
  Limits limits_;
  Events events_;
  unsigned wanted_ = 0;
  std::unique_ptr<FrameWriter> writer_;  // null: no frames yet
  std::unique_ptr<FrameReader> reader_;
  std::optional<Error> broken_;  // the stream below has failed, or a frame is wrong
  bool full_ = false;            // the owner waits for room
  ports::Loop::TimerId bandwidth_timer_ = 0;
  bool ending_ = false, again_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::stream
