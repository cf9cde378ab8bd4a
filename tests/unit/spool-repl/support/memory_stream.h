// Two ends of a stream in memory. The test sets the portions of the bytes and the failing call.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "twinloft/spool-repl/stream/stream.h"

namespace twinloft::repl {

// Bytes in flight in one direction.
struct MemoryPipe {
  std::vector<std::byte> bytes;
  std::size_t begin = 0;  // the bytes before it were read
  bool ended = false;     // no more bytes are written
  // The number of all bytes so far. Bytes after `cut_at` are lost, and the stream ends there.
  std::size_t written = 0, cut_at = SIZE_MAX;

  std::size_t waiting() const { return bytes.size() - begin; }
};

class MemoryStream final : public stream::Stream {
 public:
  struct Limits {
    std::size_t read_max = SIZE_MAX, write_max = SIZE_MAX;  // bytes in one call
    std::size_t room = SIZE_MAX;                            // limit of unread bytes
  };
  MemoryStream(std::shared_ptr<MemoryPipe> in, std::shared_ptr<MemoryPipe> out, Limits portions,
               State state = State::open)
      : limits(portions), in_(std::move(in)), out_(std::move(out)), state_(state) {}

  void start(unsigned interest, Events events) override {
    wanted_ = interest;
    events_ = std::move(events);
  }
  State state() const override { return state_; }
  void want(unsigned interest) override { wanted_ = interest; }
  void set_events(Events events) override { events_ = std::move(events); }
  Result<Got> read(std::span<const iovec> into) override {
    if (fails()) return fail(Errc::io, "broken by the test");
    Got got;
    bool all = true;
    for (const iovec& v : into) {
      std::size_t n = std::min({v.iov_len, in_->waiting(), limits.read_max - got.bytes});
      std::copy_n(in_->bytes.begin() + static_cast<std::ptrdiff_t>(in_->begin), n,
                  static_cast<std::byte*>(v.iov_base));
      in_->begin += n;
      got.bytes += n;
      all = all && n == v.iov_len;
    }
    more_ = all;
    if (in_->begin == in_->bytes.size()) in_->bytes.clear(), in_->begin = 0;
    got.ended = got.bytes == 0 && in_->ended;
    return got;
  }
  Result<std::size_t> write(std::span<iovec> from) override {
    if (fails()) return fail(Errc::io, "broken by the test");
    std::size_t left = std::min(limits.write_max, limits.room - std::min(limits.room, out_->waiting()));
    std::size_t done = 0;
    for (const iovec& v : from) {
      std::size_t n = std::min(v.iov_len, left - done);
      put({static_cast<const std::byte*>(v.iov_base), n});
      done += n;
    }
    return done;
  }
  void end_output() override { out_->ended = true; }
  void close() override {
    state_ = State::closed;
    out_->ended = true;
  }
  bool is_stuck() const override { return stuck; }

  // Delivers what is ready. Returns false if nothing is.
  bool turn() {
    if (state_ != State::open) return false;
    unsigned ready = 0;
    if ((in_->waiting() > 0 && (!announces_once || in_->written != announced_ || more_)) || in_->ended)
      ready |= readable;
    if (limits.read_max == 0) ready = 0;  // what arrives is dropped on the way, as far as this side can tell
    if (out_->waiting() < limits.room) ready |= writable;
    ready &= wanted_;
    if (ready & readable) announced_ = in_->written, more_ = false;
    if (ready != 0) events_.ready(ready);
    return ready != 0;
  }
  void finish_opening(Status opened) {
    if (opened) state_ = State::open;
    events_.opened(std::move(opened));
  }

  Limits limits;
  bool stuck = false;
  // As TLS: bytes that were announced are announced again only after a read that filled its places.
  bool announces_once = false;
  std::size_t calls = 0;                // number of read() and write() calls
  std::optional<std::size_t> fails_at;  // the call with this number

 private:
  bool fails() { return calls++ == fails_at; }
  void put(std::span<const std::byte> data) {
    data = data.first(std::min(data.size(), out_->cut_at - std::min(out_->cut_at, out_->written)));
    out_->bytes.insert(out_->bytes.end(), data.begin(), data.end());
    out_->written += data.size();
    if (out_->written == out_->cut_at) out_->ended = true;
  }

  std::shared_ptr<MemoryPipe> in_, out_;
  State state_;
  std::size_t announced_ = 0;
  bool more_ = false;
  unsigned wanted_ = 0;
  Events events_;
};

}  // namespace twinloft::repl
