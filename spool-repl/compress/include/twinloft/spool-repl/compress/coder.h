// Compresses and decompresses the content of a frame, by the codecs' libraries: liblz4, libzstd, zlib,
// liblzma.
//
// A Coder is of one thread, and keeps the memory of the codecs between frames.
#pragma once

#include <memory>

#include "twinloft/base/bytes.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/compress/frame.h"
#include "twinloft/spool-repl/compress/setting.h"

namespace twinloft::repl::compress {

class Coder {
 public:
  Coder();
  ~Coder();
  Coder(const Coder&) = delete;
  Coder& operator=(const Coder&) = delete;

  // Returns the number of bytes in `to`, or 0: there is no room for them, or no memory. `to` is smaller than
  // `raw`, since a frame that does not become smaller is sent as it is.
  std::size_t pack(const Method& method, ByteSpan raw, MutableByteSpan to);
  // `to` has the size that the frame's header names. Errors: Errc::corrupt (damaged, or of another size),
  // Errc::exhausted (no memory).
  Status unpack(Codec codec, ByteSpan packed, MutableByteSpan to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace twinloft::repl::compress
