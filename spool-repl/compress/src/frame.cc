#include "twinloft/spool-repl/compress/frame.h"

#include <fmt/format.h>

namespace twinloft::repl::compress {

namespace {
constexpr std::uint16_t magic = 0x4354;  // "TC"
}

std::array<std::byte, header_bytes> encode_frame_header(const FrameHeader& header) {
  std::array<std::byte, header_bytes> out;
  store_le(out.data(), magic);
  store_le(out.data() + 2, static_cast<std::uint8_t>(header.codec));
  store_le(out.data() + 3, std::uint8_t{0});
  store_le(out.data() + 4, header.raw_bytes);
  store_le(out.data() + 8, header.packed_bytes);
  return out;
}

Result<FrameHeader> decode_frame_header(ByteSpan in, CodecSet accepted) {
  Reader r(in);
  auto found = r.get<std::uint16_t>();
  auto codec = r.get<std::uint8_t>();
  auto reserved = r.get<std::uint8_t>();
  FrameHeader h;
  h.raw_bytes = r.get<std::uint32_t>();
  h.packed_bytes = r.get<std::uint32_t>();
  if (!r.ok() || found != magic || reserved != 0) return fail(Errc::corrupt, "bytes that are no frame");
  if (codec > static_cast<std::uint8_t>(all_codecs.back()) || !accepted.has(static_cast<Codec>(codec)))
    return fail(Errc::denied, "a frame of codec {}, which this side has not offered", codec);
  h.codec = static_cast<Codec>(codec);
  bool fits = h.codec == Codec::none ? h.packed_bytes == h.raw_bytes
                                     : h.packed_bytes > 0 && h.packed_bytes < h.raw_bytes;
  if (h.raw_bytes == 0 || h.raw_bytes > raw_bytes_max || !fits)
    return fail(Errc::corrupt, "a frame of {} bytes from {} bytes", h.packed_bytes, h.raw_bytes);
  return h;
}

}  // namespace twinloft::repl::compress
