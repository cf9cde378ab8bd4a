#include "twinloft/spool-repl/stream/packed_stream.h"

#include <algorithm>

#include "frame_reader.h"
#include "frame_writer.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::stream {

// Content and frames of the output, and of the input.
std::uint64_t packed_stream_bytes_max(unsigned threads) {
  PackedStream::Limits limits;
  return 2 * unsent_bytes_max(limits.unsent_bytes, threads) +
         2 * (limits.undecoded_bytes + compress::raw_bytes_max);
}

PackedStream::PackedStream(ports::Loop& loop, std::unique_ptr<Stream> below, std::shared_ptr<WorkPool> pool,
                           Limits limits)
    : loop_(loop), below_(std::move(below)), pool_(std::move(pool)), limits_(limits) {}

PackedStream::~PackedStream() {
  if (bandwidth_timer_) loop_.cancel(bandwidth_timer_);
  if (done_) loop_.unwatch(done_->descriptor());
}

Status PackedStream::begin_frames(compress::CodecSet accepted, compress::CodecSet allowed, ByteSpan received,
                                  ByteSpan unsent) {
  TL_CHECK(!has_frames() && state() == State::open);
  if (pool_) {
    TL_TRY_ASSIGN(done_, DoneWork::make());
    loop_.watch(done_->descriptor(), ports::Loop::readable, [this](unsigned) { on_done(); });
  }
  writer_ = std::make_unique<FrameWriter>(loop_, *below_, pool_, done_, allowed, limits_.unsent_bytes,
                                          unsent);
  reader_ = std::make_unique<FrameReader>(*below_, pool_, done_, accepted, limits_.undecoded_bytes, received);
  watch_below();
  call_again();
  return {};
}

void PackedStream::set_packing(const Packing& packing) {
  if (!has_frames()) return;
  writer_->set_packing(packing);
  reader_->set_link(packing.link);
}

void PackedStream::set_shaping(const Shaping& shaping) {
  if (!has_frames()) return;
  writer_->set_shaping(shaping);
  if (bandwidth_timer_) loop_.cancel(bandwidth_timer_);
  bandwidth_timer_ = 0;
  watch_below();
}

std::uint64_t PackedStream::line_bytes_received() const {
  return reader_ ? reader_->line_bytes() : 0;
}

std::uint64_t PackedStream::line_bytes_sent() const {
  return writer_ ? writer_->line_bytes() : 0;
}

bool PackedStream::is_decoding() const {
  return reader_ && reader_->is_decoding();
}

PackingStatus PackedStream::packing_status() const {
  PackingStatus status;
  if (!has_frames()) return status;
  writer_->tell(status);
  reader_->tell(status);
  return status;
}

void PackedStream::start(unsigned interest, Events events) {
  events_ = std::move(events);
  wanted_ = interest;
  below_->start(interest, {[this](Status opened) { events_.opened(std::move(opened)); },
                           [this](unsigned ready) { on_ready(ready); }});
}

void PackedStream::watch_below() {
  if (below_->state() != State::open) return;
  if (!has_frames()) return below_->want(wanted_);
  if (broken_) return below_->want(0);
  wait_for_bandwidth();
  unsigned interest = reader_->wants_input() ? wanted_ & readable : 0;
  if (writer_->waits_for_line()) interest |= writable;
  below_->want(interest);
}

void PackedStream::wait_for_bandwidth() {
  auto wait = writer_->waits_for_bandwidth();
  if (!wait || bandwidth_timer_) return;
  bandwidth_timer_ = loop_.after(std::max<Duration>(*wait, std::chrono::microseconds(100)), [this] {
    bandwidth_timer_ = 0;
    if (state() != State::open || broken_) return;
    if (Status sent = writer_->pump(); !sent) broken_ = sent.error();
    tell(0);
  });
}

void PackedStream::want(unsigned interest) {
  bool reads_again = (interest & readable) && !(wanted_ & readable);
  wanted_ = interest;
  watch_below();
  if (!has_frames() || state() != State::open) return;
  bool has_room = (wanted_ & writable) && !ending_ && writer_->has_room();
  if (has_room || (reads_again && reader_->has_input())) call_again();
}

void PackedStream::on_ready(unsigned ready) {
  if (!has_frames()) return events_.ready(ready);
  if (ready & readable) reader_->note_ready();
  if (ready & writable)
    if (Status sent = writer_->pump(); !sent) broken_ = sent.error();
  tell(ready & readable);
}

void PackedStream::hurry() {
  if (!has_frames() || broken_ || state() != State::open) return;
  if (Status sent = writer_->hurry(); !sent) broken_ = sent.error();
  tell(0);
}

// The frames that the pool has finished.
void PackedStream::on_done() {
  for (const std::shared_ptr<Work>& work : done_->take()) {
    if (auto out = std::dynamic_pointer_cast<OutFrame>(work))
      writer_->take(*out);
    else if (auto in = std::dynamic_pointer_cast<InFrame>(work))
      reader_->take(*in);
  }
  if (!writer_->is_blocked() && !broken_)
    if (Status sent = writer_->pump(); !sent) broken_ = sent.error();
  tell(reader_->has_input() ? unsigned{readable} : 0u);
}

// Tells the owner what it waits for. The last call: the owner may close this stream.
void PackedStream::tell(unsigned ready) {
  if (ending_ && writer_->is_empty()) {
    ending_ = false;
    below_->end_output();
    ready |= writable;
  }
  if (full_ && writer_->has_room()) {
    full_ = false;
    ready |= writable;
  }
  ready &= wanted_;
  // The owner may want only one of them, and learns of the end by either.
  if (broken_) ready |= readable | writable;
  watch_below();
  if (ready && state() == State::open) events_.ready(ready);
}

// In a later turn, for bytes or room that no event of the stream below announces.
void PackedStream::call_again() {
  if (std::exchange(again_, true)) return;
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    again_ = false;
    if (state() == State::open && wanted_) events_.ready(wanted_);
  });
}

Result<Stream::Got> PackedStream::checked(Result<Got> got) {
  if (!got) broken_ = got.error();
  return got;
}

Result<Stream::Got> PackedStream::read(std::span<const iovec> into) {
  if (!has_frames()) return below_->read(into);
  if (broken_) return std::unexpected(*broken_);
  auto got = checked(reader_->read(into));
  watch_below();
  if (got && reader_->has_input()) call_again();
  return got;
}

Result<std::size_t> PackedStream::write(std::span<iovec> from) {
  if (!has_frames()) return below_->write(from);
  if (broken_) return std::unexpected(*broken_);
  std::size_t bytes = 0;
  for (const iovec& v : from) bytes += v.iov_len;
  TL_TRY_ASSIGN(std::size_t accepted, writer_->write(from));
  full_ = accepted < bytes;
  watch_below();
  return accepted;
}

void PackedStream::end_output() {
  if (!has_frames()) return below_->end_output();
  ending_ = true;
  if (writer_->is_empty()) {
    ending_ = false;
    below_->end_output();
  }
}

void PackedStream::close() {
  if (state() == State::closed) return;
  if (has_frames() && state() == State::open && !broken_) writer_->send_uncompressed();
  if (done_) {
    loop_.unwatch(done_->descriptor());
    done_.reset();
  }
  if (bandwidth_timer_) loop_.cancel(bandwidth_timer_);
  bandwidth_timer_ = 0;
  below_->close();
}

bool PackedStream::has_unsent() const {
  return (writer_ && !writer_->is_empty()) || below_->has_unsent();
}

}  // namespace twinloft::repl::stream
