// A model of a line and a processor: the chooser finds the codec that carries the most.
#include "twinloft/spool-repl/compress/chooser.h"

#include <gtest/gtest.h>

namespace twinloft::repl::compress {
namespace {

struct ChooserTest : testing::Test {
  struct Truth {
    double bytes_per_second, ratio;
  };
  std::array<Truth, all_codecs.size()> truth{
      {{1e12, 1.0}, {300e6, 0.7}, {100e6, 0.5}, {25e6, 0.48}, {3e6, 0.42}}};
  Instant now{1'000'000'000};
  std::array<unsigned, all_codecs.size()> used{};

  // Sends frames over a line with this rate, and returns the codec that carried the most of the last ones.
  void send(Chooser& chooser, unsigned threads, double line, unsigned frames) {
    used = {};
    for (unsigned i = 0; i < frames; ++i) {
      Codec c = chooser.next(raw_bytes, now);
      ++used[static_cast<std::size_t>(c)];
      const Truth& t = truth[static_cast<std::size_t>(c)];
      double coding = raw_bytes / t.bytes_per_second, sending = raw_bytes * t.ratio / line;
      chooser.note_frame(c, raw_bytes, static_cast<std::size_t>(raw_bytes * t.ratio), seconds(coding));
      bool full = sending > coding / threads;
      now = now + seconds(std::max(coding / threads, sending));
      if (full) chooser.note_line(static_cast<std::uint64_t>(raw_bytes * t.ratio), seconds(sending), now);
    }
  }
  Codec settled(double line, unsigned threads = 2) {
    Chooser chooser(threads, CodecSet::all());
    chooser.note_line(1'000'000, seconds(1e6 / line), now);
    send(chooser, threads, line, 400);
    return chooser.best();
  }
  static Duration seconds(double s) { return Duration(static_cast<std::int64_t>(s * 1e9)); }
  static constexpr std::size_t raw_bytes = 256 << 10;
};

TEST_F(ChooserTest, NothingIsCompressedUntilTheLineWasFull) {
  Chooser chooser(2, CodecSet::all());
  for (int i = 0; i < 500; ++i) EXPECT_EQ(chooser.next(raw_bytes, now), Codec::none);
}

TEST_F(ChooserTest, TheCodecThatCarriesTheMostIsFound) {
  EXPECT_EQ(settled(10e9), Codec::none);
  EXPECT_EQ(settled(250e6), Codec::lz4);    // 600 of it: 357; zstd: 200
  EXPECT_EQ(settled(50e6), Codec::zstd);    // 100; lz4: 71; zlib: 50
  EXPECT_EQ(settled(2e6), Codec::xz);       // 4.76; zlib: 4.17
  EXPECT_EQ(settled(2e6, 1), Codec::zstd);  // xz: 3 by the processor; zlib: 4 % more than zstd
}

TEST_F(ChooserTest, ForALittleGainTheCheaperCodecStays) {
  truth = {{{1e12, 1.0}, {300e6, 0.99}, {100e6, 0.97}, {25e6, 0.97}, {3e6, 0.96}}};
  EXPECT_EQ(settled(5e6), Codec::none);
}

TEST_F(ChooserTest, FewFramesTryAnotherCodec) {
  Chooser chooser(2, CodecSet::all());
  chooser.note_line(1'000'000, seconds(0.02), now);
  send(chooser, 2, 50e6, 100);
  send(chooser, 2, 50e6, 64 * 32);
  EXPECT_EQ(chooser.best(), Codec::zstd);
  EXPECT_GE(used[2], 64u * 31);
  EXPECT_GE(used[1] + used[3], 28u);  // speeds that may win soon
  EXPECT_GE(used[4], 1u);             // far too slow for this line, and tried less often
  EXPECT_LE(used[4], 3u);
}

TEST_F(ChooserTest, AnotherLineRateChangesTheCodec) {
  Chooser chooser(2, CodecSet::all());
  chooser.note_line(1'000'000, seconds(0.02), now);
  send(chooser, 2, 50e6, 200);
  EXPECT_EQ(chooser.best(), Codec::zstd);
  send(chooser, 2, 2e6, 200);
  EXPECT_EQ(chooser.best(), Codec::xz);
  send(chooser, 2, 250e6, 400);
  EXPECT_NE(chooser.best(), Codec::xz);
}

TEST_F(ChooserTest, ARateOfLongAgoDoesNotCount) {
  Chooser chooser(2, CodecSet::all());
  chooser.note_line(1'000'000, seconds(0.5), now);
  EXPECT_TRUE(chooser.line_rate(now));
  EXPECT_NE(chooser.next(100, now), Codec::none);
  now = now + std::chrono::seconds(61);
  EXPECT_FALSE(chooser.line_rate(now));
  EXPECT_EQ(chooser.next(100, now), Codec::none);
}

TEST_F(ChooserTest, OnlyAllowedCodecsAreUsed) {
  Chooser chooser(2, CodecSet(1u << 3));
  chooser.note_line(1'000'000, seconds(1), now);
  send(chooser, 2, 1e6, 300);
  EXPECT_EQ(chooser.best(), Codec::zlib);
  EXPECT_EQ(used[1] + used[2] + used[4], 0u);
}

}  // namespace
}  // namespace twinloft::repl::compress
