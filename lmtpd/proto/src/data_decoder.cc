#include "twinloft/lmtpd/proto/data_decoder.h"

namespace twinloft::lmtpd {

namespace {
constexpr std::byte cr{'\r'}, lf{'\n'}, dot{'.'};
constexpr std::byte held_cr[1] = {cr};
}  // namespace

bool DataDecoder::decode(ByteSpan& in, std::vector<ByteSpan>& out) {
  std::size_t begin = 0, at = 0;  // [begin, at) is decoded and not in `out` yet
  auto emit = [&](std::size_t end) {
    if (end > begin) out.push_back(in.subspan(begin, end - begin));
  };
  bool cr_is_from_before = state_ == State::dot_cr;
  while (at < in.size()) {
    switch (state_) {
      case State::text: {
        // The common case: continues at the next CR, since every line's end has one.
        const void* found = std::memchr(in.data() + at, '\r', in.size() - at);
        if (!found) {
          at = in.size();
          break;
        }
        at = static_cast<std::size_t>(static_cast<const std::byte*>(found) - in.data()) + 1;
        state_ = State::cr;
        break;
      }
      case State::cr:
        state_ = in[at] == lf ? State::line_start : in[at] == cr ? State::cr : State::text;
        ++at;
        break;
      case State::line_start:
        if (in[at] == dot) {
          emit(at);
          begin = ++at;
          state_ = State::dot;
        } else {
          state_ = in[at] == cr ? State::cr : State::text;
          ++at;
        }
        break;
      case State::dot:
        if (in[at] == cr) {
          // Held back: it is data only if no LF follows.
          begin = at++;
          cr_is_from_before = false;
          state_ = State::dot_cr;
        } else {
          state_ = State::text;
          ++at;
        }
        break;
      case State::dot_cr:
        if (in[at] == lf) {
          in = in.subspan(at + 1);
          state_ = State::line_start;
          return true;
        }
        if (cr_is_from_before) out.push_back(held_cr);
        cr_is_from_before = false;
        state_ = in[at] == cr ? State::cr : State::text;
        ++at;
        break;
    }
  }
  if (state_ != State::dot_cr) emit(in.size());
  in = {};
  return false;
}

}  // namespace twinloft::lmtpd
