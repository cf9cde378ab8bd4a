// Every codec gives back what was packed, and refuses everything else.
#include "twinloft/spool-repl/compress/coder.h"

#include <gtest/gtest.h>

#include <random>

#include "../support/some_text.h"

namespace twinloft::repl::compress {
namespace {

using Bytes = std::vector<std::byte>;

Bytes noise(std::size_t bytes) {
  std::mt19937 random(7);
  Bytes out(bytes);
  for (auto& b : out) b = std::byte(random());
  return out;
}

struct CoderTest : testing::TestWithParam<Codec> {
  Coder coder;
  Bytes packed(const Bytes& raw, int level = 0) {
    Bytes out(raw.size() - 1);
    out.resize(coder.pack({GetParam(), level}, raw, out));
    return out;
  }
  // Also that no byte behind `to` is written.
  Status unpack(ByteSpan from, std::size_t bytes, Bytes* result = nullptr) {
    Bytes to(bytes + 16, std::byte{0x55});
    Status done = coder.unpack(GetParam(), from, MutableByteSpan(to).first(bytes));
    EXPECT_TRUE(std::all_of(to.end() - 16, to.end(), [](std::byte b) { return b == std::byte{0x55}; }));
    to.resize(bytes);
    if (result) *result = std::move(to);
    return done;
  }
};

TEST_P(CoderTest, ReturnsWhatWasPacked) {
  for (std::size_t bytes : {std::size_t{129}, std::size_t{4096}, std::size_t{70'001}, raw_bytes_max}) {
    Bytes raw = some_text(bytes, static_cast<unsigned>(bytes)), back;
    Bytes out = packed(raw);
    ASSERT_GT(out.size(), 0u) << bytes;
    ASSERT_TRUE(unpack(out, bytes, &back)) << bytes;
    EXPECT_TRUE(back == raw) << bytes;
  }
}

TEST_P(CoderTest, ZerosNearlyVanish) {
  Bytes raw(raw_bytes_max);
  EXPECT_LT(packed(raw).size(), 1200u);
}

TEST_P(CoderTest, WhatDoesNotBecomeSmallerIsNotPacked) {
  EXPECT_EQ(packed(noise(10'000)).size(), 0u);
  EXPECT_EQ(packed(Bytes(1)).size(), 0u);
  EXPECT_GT(packed(some_text(10'000)).size(), 0u);  // the coder is of use after it
}

TEST_P(CoderTest, AnotherSizeThanTheHeaderSaysIsDamage) {
  Bytes raw = some_text(5000), out = packed(raw);
  for (std::size_t other : {std::size_t{1}, std::size_t{4999}, std::size_t{5001}}) {
    Status done = unpack(out, other);
    ASSERT_FALSE(done) << other;
    EXPECT_EQ(done.error().code, Errc::corrupt);
    EXPECT_EQ(done.error().message, std::string("a damaged frame of codec ") + name_of(GetParam()));
  }
  EXPECT_TRUE(unpack(out, 5000));
}

TEST_P(CoderTest, ATruncatedOrLongerFrameIsDamage) {
  Bytes raw = some_text(5000), out = packed(raw);
  EXPECT_FALSE(unpack(ByteSpan(out).first(out.size() - 1), 5000));
  EXPECT_FALSE(unpack(ByteSpan(out).first(out.size() / 2), 5000));
  EXPECT_FALSE(unpack({}, 5000));
  out.push_back(std::byte{1});
  EXPECT_FALSE(unpack(out, 5000));
}

TEST_P(CoderTest, EachLevelGivesTheSameBack) {
  Bytes raw = some_text(20'000), back;
  for (int level = 1; level <= 9 && default_level(GetParam()) != 0; level += 2) {
    Bytes out = packed(raw, level);
    ASSERT_GT(out.size(), 0u);
    ASSERT_TRUE(unpack(out, raw.size(), &back));
    EXPECT_TRUE(back == raw) << level;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, CoderTest, testing::Values(Codec::lz4, Codec::zstd, Codec::zlib, Codec::xz),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace twinloft::repl::compress
