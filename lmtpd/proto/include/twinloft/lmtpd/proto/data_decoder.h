// The message after DATA: removes dot-stuffing, and finds the end (RFC 5321 sections 4.1.1.4 and 4.5.2).
//
// The end is CRLF "." CRLF alone, in any split of the bytes. The CRLF of the DATA command counts as the first
// CRLF. Bare CR and bare LF are data and start no line, so that no other sequence ends a message or hides its
// end.
#pragma once

#include <vector>

#include "twinloft/base/bytes.h"

namespace twinloft::lmtpd {

class DataDecoder {
 public:
  void reset() { state_ = State::line_start; }

  // Removes bytes from the front of `in`, up to the end of the data. Appends the decoded bytes to `out`, as
  // spans into `in` (valid as long as its memory) or into static memory. True: the end of the data was found,
  // and `in` has the bytes after it.
  bool decode(ByteSpan& in, std::vector<ByteSpan>& out);

 private:
  // The last bytes: the end of a line, a CR that may be half of it, a dot at a line's start, or dot and CR.
  enum class State { line_start, text, cr, dot, dot_cr };
  State state_ = State::line_start;
};

}  // namespace twinloft::lmtpd
