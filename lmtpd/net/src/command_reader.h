// The input of a connection's socket.
//
//   idle ──wait()──▶ waiting ──ready()──▶ idle ──read(), the client has closed its side──▶ ended
//
// An illegal transition throws std::logic_error, which ends this connection only.
#pragma once

#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>

#include "wire.h"

namespace twinloft::lmtpd {

class CommandReader {
 public:
  bool may_wait() const { return state_ == State::idle; }
  bool ended() const { return state_ == State::ended; }
  void wait() { step(State::idle, State::waiting); }
  void ready() { step(State::waiting, State::idle); }

  struct Bytes {
    std::string_view bytes;  // in the buffer
  };
  struct Nothing {};       // now
  struct NeedsToWrite {};  // TLS has to send something first
  struct End {};           // the client has closed its side: from now on ended()
  struct Broken {};
  using Got = std::variant<Bytes, Nothing, NeedsToWrite, End, Broken>;
  // Reads once. Only in state `idle`.
  Got read(Wire& wire, std::span<char> buffer) {
    const Wire::Outcome got = wire.receive(buffer);
    switch (got.state) {
      case Wire::State::done:
        return Bytes{std::string_view(buffer.data(), got.bytes)};
      case Wire::State::want_read:
        return Nothing{};
      case Wire::State::want_write:
        return NeedsToWrite{};
      case Wire::State::end:
        step(State::idle, State::ended);
        return End{};
      case Wire::State::broken:
        break;
    }
    return Broken{};
  }

 private:
  enum class State {
    idle,
    waiting,  // the event loop calls back when there are bytes
    ended,
  };
  void step(State from, State to) {
    if (std::exchange(state_, to) != from) throw std::logic_error("illegal transition of the input's state");
  }
  State state_ = State::idle;
};

}  // namespace twinloft::lmtpd
