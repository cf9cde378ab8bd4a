// The message after DATA: dot-unstuffing and its end (RFC 5321 sections 4.1.1.4 and 4.5.2).
//
// Only CRLF "." CRLF ends the data, in any split of the bytes, with the CRLF of the DATA command counting as
// the first one. Bare CR and bare LF are data and start no line, so that no other sequence can end a message
// or hide its end.
#pragma once

#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

class DataDecoder {
 public:
  void reset() { state_ = State::line_start; }

  // Takes bytes from the front of `in` up to the end of the data, if it is there. Decoded bytes are appended
  // to `out` as spans into `in` (or into static memory), valid as long as that is. Returns true at the end of
  // the data; what follows it stays in `in`.
  bool decode(ByteSpan& in, std::vector<ByteSpan>& out);

 private:
  // What came last: the end of a line, a CR that may begin one, a dot at a line's start, that dot and a CR.
  enum class State { line_start, text, cr, dot, dot_cr };
  State state_ = State::line_start;
};

}  // namespace twinloft::lmtpd
