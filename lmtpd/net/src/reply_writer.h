// What a connection writes: replies that gather, and go out by as few calls as the socket allows.
//
//   idle ──wait()──▶ waiting ──ready()──▶ idle
//
// A step that a state does not have is a std::logic_error, which costs that connection, and nothing else.
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
  // What is there says what became of a message: it is not held back for what comes behind it.
  void hurry() { urgent_ = !bytes_.empty(); }
  // Whether what is there had better go with what comes behind it.
  bool may_be_held_back() const { return bytes_.size() < held_back_max && !urgent_; }
  bool empty() const { return bytes_.empty(); }

  bool is_waiting() const { return state_ == State::waiting; }
  void wait() { step(State::idle, State::waiting); }
  void ready() { step(State::waiting, State::idle); }

  enum class Flushed {
    all,
    needs_room,     // the rest once the socket can be written
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
  static constexpr std::size_t memory_max = 16 * 1024;     // that is held while there is nothing to be sent
  static constexpr std::size_t held_back_max = 16 * 1024;  // bytes
  enum class State {
    idle,
    waiting,  // the event loop tells when there is room
  };
  void step(State from, State to) {
    if (std::exchange(state_, to) != from)
      throw std::logic_error("a step of the output that its state does not have");
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
