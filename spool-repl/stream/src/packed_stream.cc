#include "twinloft/spool-repl/stream/packed_stream.h"

#include "frame_reader.h"
#include "frame_writer.h"
#include "twinloft/base/check.h"

namespace twinloft::repl::stream {

PackedStream::PackedStream(ports::Loop& loop, std::unique_ptr<Stream> below, std::shared_ptr<WorkPool> pool,
                           Limits limits)
    : loop_(loop), below_(std::move(below)), pool_(std::move(pool)), limits_(limits) {}

PackedStream::~PackedStream() {
  if (done_) loop_.unwatch(done_->descriptor());
}

void PackedStream::begin_frames(compress::CodecSet accepted, compress::CodecSet allowed, ByteSpan received,
                                ByteSpan unsent) {
  TL_CHECK(!has_frames() && state() == State::open);
  if (pool_) {
    done_ = std::make_shared<DoneWork>();
    loop_.watch(done_->descriptor(), ports::Loop::readable, [this](unsigned) { on_done(); });
  }
  writer_ = std::make_unique<FrameWriter>(loop_, *below_, pool_, done_, allowed, limits_.unsent_bytes,
                                          unsent);
  reader_ = std::make_unique<FrameReader>(*below_, pool_, done_, accepted, limits_.undecoded_bytes, received);
  watch_below();
  if (!received.empty()) call_again();
}

void PackedStream::set_packing(const Packing& packing) {
  if (!has_frames()) return;
  writer_->set_packing(packing);
  reader_->set_link(packing.link);
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
  unsigned interest = reader_->has_room() ? wanted_ & readable : 0;
  if (writer_->waits_for_line()) interest |= writable;
  below_->want(interest);
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
  if (ready & writable)
    if (Status sent = writer_->pump(); !sent) broken_ = sent.error();
  tell(ready & readable);
}

// The frames that the pool has finished.
void PackedStream::on_done() {
  for (const std::shared_ptr<Work>& work : done_->take()) {
    if (auto out = std::dynamic_pointer_cast<OutFrame>(work))
      writer_->take(*out);
    else if (auto in = std::dynamic_pointer_cast<InFrame>(work))
      reader_->take(*in);
  }
  if (!writer_->waits_for_line() && !broken_)
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
  below_->close();
}

bool PackedStream::has_unsent() const {
  return (writer_ && !writer_->is_empty()) || below_->has_unsent();
}

}  // namespace twinloft::repl::stream
