// The input is a message as on the wire. Its first byte sets the size of the pieces. The result is compared
// with that of a decoder that sees the whole message at once.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/base/check.h"
#include "twinloft/lmtpd/proto/data_decoder.h"

using namespace twinloft;
using namespace twinloft::lmtpd;

namespace {

struct Decoded {
  std::string text;
  std::optional<std::size_t> end;  // number of bytes up to and including the end of the data; nothing without
                                   // an end
  bool operator==(const Decoded&) const = default;
};

// RFC 5321 section 4.5.2: only CR LF "." CR LF ends the data. A dot at the start of a line is removed.
Decoded reference(std::string_view wire) {
  constexpr std::string_view line_end = "\r\n";
  std::string text = std::string(line_end) + std::string(wire);  // the data starts at a line's start
  Decoded out;
  std::size_t end = text.find("\r\n.\r\n");
  if (end != std::string::npos) {
    out.end = end + 3;  // without the added line end
    text.resize(end + line_end.size());
  }
  for (std::size_t at = 0; (at = text.find("\r\n.", at)) != std::string::npos; at += line_end.size())
    text.erase(at + line_end.size(), 1);
  out.text = text.substr(line_end.size());
  return out;
}

Decoded decode(std::string_view wire, std::size_t piece_bytes) {
  Decoded out;
  DataDecoder decoder;
  for (std::size_t at = 0; at < wire.size(); at += piece_bytes) {
    std::string copy(wire.substr(at, piece_bytes));  // a copy, to detect reads beyond it
    ByteSpan in = as_bytes(copy);
    std::vector<ByteSpan> pieces;
    bool ended = decoder.decode(in, pieces);
    for (ByteSpan piece : pieces) out.text += as_text(piece);
    if (ended) {
      out.end = at + copy.size() - in.size();
      return out;
    }
    TL_CHECK(in.empty());
  }
  return out;
}

// The decoder keeps unfinished input back at the end: ".", CR, or both.
bool agree(const Decoded& got, const Decoded& expected) {
  if (got.end || expected.end) return got == expected;
  return expected.text.starts_with(got.text) && expected.text.size() - got.text.size() <= 3;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view wire(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Decoded expected = reference(wire);
  const Decoded whole = decode(wire, std::max<std::size_t>(1, wire.size()));
  TL_CHECK(agree(whole, expected));
  TL_CHECK(decode(wire, 1) == whole);
  TL_CHECK(decode(wire, 1 + data[0]) == whole);
  return 0;
}
