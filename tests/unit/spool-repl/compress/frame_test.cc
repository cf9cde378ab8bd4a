#include "twinloft/spool-repl/compress/frame.h"

#include <gtest/gtest.h>

namespace twinloft::repl::compress {
namespace {

std::string refusal(const FrameHeader& header, CodecSet accepted = CodecSet::all()) {
  auto found = decode_frame_header(encode_frame_header(header), accepted);
  return found ? "accepted" : found.error().message;
}

TEST(FrameTest, AHeaderHasTheseBytes) {
  auto bytes = encode_frame_header({Codec::zstd, 0x01020304, 0x0a0b0c});
  const unsigned char expected[] = {'T', 'C', 2, 0, 4, 3, 2, 1, 0x0c, 0x0b, 0x0a, 0};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
  FrameHeader largest{Codec::xz, raw_bytes_max, raw_bytes_max - 1};
  EXPECT_EQ(decode_frame_header(encode_frame_header(largest), CodecSet::all()).value(), largest);
}

TEST(FrameTest, SizesThatCannotBeAreRefused) {
  EXPECT_EQ(refusal({Codec::none, 1, 1}), "accepted");
  EXPECT_EQ(refusal({Codec::none, 0, 0}), "a frame of 0 bytes from 0 bytes");
  EXPECT_EQ(refusal({Codec::none, 5, 4}), "a frame of 4 bytes from 5 bytes");
  EXPECT_EQ(refusal({Codec::lz4, 5, 5}), "a frame of 5 bytes from 5 bytes");
  EXPECT_EQ(refusal({Codec::lz4, 5, 0}), "a frame of 0 bytes from 5 bytes");
  EXPECT_EQ(refusal({Codec::none, raw_bytes_max + 1, raw_bytes_max + 1}),
            "a frame of 262145 bytes from 262145 bytes");
  EXPECT_EQ(refusal({Codec::lz4, raw_bytes_max + 1, 4}), "a frame of 4 bytes from 262145 bytes");
}

TEST(FrameTest, ACodecThatWasNotOfferedIsRefused) {
  EXPECT_EQ(refusal({Codec::xz, 50, 4}, CodecSet(0b1111)),
            "a frame of codec 4, which this side has not offered");
  EXPECT_EQ(refusal({static_cast<Codec>(5), 50, 4}), "a frame of codec 5, which this side has not offered");
  EXPECT_EQ(refusal({static_cast<Codec>(200), 50, 4}),
            "a frame of codec 200, which this side has not offered");
}

TEST(FrameTest, OtherBytesAreNoFrame) {
  auto bytes = encode_frame_header({Codec::zstd, 50, 4});
  for (std::size_t at : {0u, 1u, 3u}) {
    auto other = bytes;
    other[at] ^= std::byte{1};
    auto found = decode_frame_header(other, CodecSet::all());
    EXPECT_TRUE(!found && found.error().message == "bytes that are no frame") << at;
  }
  EXPECT_FALSE(decode_frame_header(ByteSpan(bytes).first(header_bytes - 1), CodecSet::all()));
}

}  // namespace
}  // namespace twinloft::repl::compress
