// A frame of a link, from a peer that may send anything. The first byte selects the codec, and whether the
// input is content that is packed first, with one byte changed then.
//
// Nothing is written behind the frame's size, and what is accepted has just that size. An unchanged frame
// gives the content back.
#include <cstdint>
#include <vector>

#include "twinloft/base/check.h"
#include "twinloft/spool-repl/compress/coder.h"

using namespace twinloft;
using namespace twinloft::repl::compress;

namespace {

using Bytes = std::vector<std::byte>;
Coder coder;

void unpack(Codec codec, ByteSpan packed, std::size_t bytes, const Bytes* expected) {
  constexpr std::size_t guard = 64;
  Bytes to(bytes + guard, std::byte{0x5a});
  Status done = coder.unpack(codec, packed, MutableByteSpan(to).first(bytes));
  for (std::size_t i = bytes; i < to.size(); ++i) TL_CHECK(to[i] == std::byte{0x5a});
  if (!expected) return;
  to.resize(bytes);
  TL_CHECK(done.has_value() && to == *expected);
}

void content(Codec codec, Bytes raw, std::size_t change) {
  if (raw.size() < 2 || codec == Codec::none) return;
  // More than the window of small inputs.
  for (int i = 0; i < 3; ++i) raw.insert(raw.end(), raw.begin(), raw.end());
  Bytes packed(raw.size() - 1);
  packed.resize(coder.pack({codec, 0}, raw, packed));
  if (packed.empty()) return;
  unpack(codec, packed, raw.size(), &raw);
  packed[change % packed.size()] ^= std::byte(1 + change % 255);
  unpack(codec, packed, raw.size(), nullptr);
  unpack(codec, packed, raw.size() / 2, nullptr);
}

void header(ByteSpan in, CodecSet accepted) {
  auto found = decode_frame_header(in, accepted);
  if (!found) return;
  TL_CHECK(accepted.has(found->codec) && found->raw_bytes <= raw_bytes_max &&
           found->packed_bytes <= found->raw_bytes);
  auto again = encode_frame_header(*found);
  TL_CHECK(std::memcmp(again.data(), in.data(), again.size()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  ByteSpan rest(reinterpret_cast<const std::byte*>(data) + 3, size - 3);
  Codec codec = all_codecs[data[0] % all_codecs.size()];
  std::size_t number = std::size_t{data[1]} << 8 | data[2];
  switch (data[0] / 8 % 3) {
    case 0:
      unpack(codec, rest, 1 + number * 4, nullptr);
      break;
    case 1:
      content(codec, Bytes(rest.begin(), rest.end()), number);
      break;
    default:
      header(rest, CodecSet(number));
  }
  return 0;
}
