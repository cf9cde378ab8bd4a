// The two directions of a connection's socket, each in one of its states. A step that a state does not have
// is a std::logic_error, which costs that connection, and nothing else.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace twinloft::lmtpd {

//   idle ──wait()──▶ waiting ──ready()──▶ idle ──end()──▶ ended
class Input {
 public:
  bool may_wait() const { return state_ == State::idle; }
  bool ended() const { return state_ == State::ended; }
  void wait() { step(State::idle, State::waiting); }
  void ready() { step(State::waiting, State::idle); }
  void end() { step(State::idle, State::ended); }

 private:
  enum class State {
    idle,
    waiting,  // the event loop tells when there are bytes
    ended,    // the client has shut its side
  };
  void step(State from, State to) {
    if (std::exchange(state_, to) != from)
      throw std::logic_error("a step of the input that its state does not have");
  }
  State state_ = State::idle;
};

//   idle ──wait()──▶ waiting ──ready()──▶ idle
class Output {
 public:
  void add(std::string bytes) {
    if (bytes_.empty())
      bytes_ = std::move(bytes);
    else
      bytes_ += bytes;
  }
  // What is there says what became of a message: it is not held back for what comes behind it.
  void hurry() { urgent_ = !bytes_.empty(); }
  bool is_urgent() const { return urgent_; }
  bool empty() const { return bytes_.empty(); }
  std::size_t size() const { return bytes_.size(); }
  std::string_view unsent() const { return std::string_view(bytes_).substr(sent_); }
  void sent(std::size_t bytes) {
    sent_ += bytes;
    if (sent_ == bytes_.size()) clear();
  }

  bool is_waiting() const { return state_ == State::waiting; }
  void wait() { step(State::idle, State::waiting); }
  void ready() { step(State::waiting, State::idle); }

 private:
  static constexpr std::size_t memory_max = 16 * 1024;  // that is held while there is nothing to be sent
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
