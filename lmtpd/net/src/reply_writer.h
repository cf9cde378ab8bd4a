// The output of a connection: collects replies, and sends them in as few calls as possible.
//
//   idle ──wait()──▶ waiting ──ready()──▶ idle
//
// An illegal transition throws std::logic_error, which ends this connection only.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "wire.h"

namespace twinloft::lmtpd {

class ReplyWriter {
 public:
  void add(std::string bytes) {
    if (bytes_.empty())
      bytes_ = std::move(bytes);
    else
      bytes_ += bytes;
  }
  // The collected bytes have the replies to a message, and are not held back for later replies.
  void hurry() { urgent_ = !bytes_.empty(); }
  // Whether the collected bytes may wait, to be sent together with later replies.
  bool may_be_held_back() const { return bytes_.size() < held_back_max && !urgent_; }
  bool empty() const { return bytes_.empty(); }

  bool is_waiting() const { return state_ == State::waiting; }
  void wait() { step(State::idle, State::waiting); }
  void ready() { step(State::waiting, State::idle); }

  enum class Flushed {
    all,
    needs_room,     // continue when the socket is writable
    needs_to_read,  // TLS has to receive something first
    broken,
  };
  Flushed flush(Wire& wire) {
    while (!bytes_.empty()) {
      const Wire::Outcome sent = wire.send(std::string_view(bytes_).substr(sent_));
      if (sent.state == Wire::State::want_write) return Flushed::needs_room;
      if (sent.state == Wire::State::want_read) return Flushed::needs_to_read;
      if (sent.state != Wire::State::done) return Flushed::broken;
      sent_ += sent.bytes;
      if (sent_ == bytes_.size()) clear();
    }
    return Flushed::all;
  }
  std::size_t memory() const { return bytes_.capacity(); }

 private:
  static constexpr std::size_t memory_max = 16 * 1024;     // bytes held while there is nothing to send
  static constexpr std::size_t held_back_max = 16 * 1024;  // bytes
  enum class State {
    idle,
    waiting,  // the event loop calls back when there is room
  };
  void step(State from, State to) {
    if (std::exchange(state_, to) != from) throw std::logic_error("illegal transition of the output's state");
  }
  void clear() {
    bytes_.clear();
    sent_ = 0;
    urgent_ = false;
    if (bytes_.capacity() > memory_max) std::string().swap(bytes_);
  }

  std::string bytes_;
  std::size_t sent_ = 0;
  bool urgent_ = false;
  State state_ = State::idle;
};

}  // namespace twinloft::lmtpd
