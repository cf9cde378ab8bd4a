// Frames over streams in memory, with the threads of a real pool.
#include "twinloft/spool-repl/stream/packed_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "../support/memory_stream.h"
#include "../support/some_text.h"
#include "../support/test_clock.h"
#include "frame_writer.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::stream {
namespace {

using compress::Adaptive;
using compress::Codec;
using compress::CodecSet;
using compress::Method;
using Bytes = std::vector<std::byte>;

struct PackedStreamTest : testing::Test {
  struct End {
    MemoryStream* below = nullptr;
    std::unique_ptr<PackedStream> stream;
    Bytes got;
    bool ended = false;
    unsigned writable = 0;  // calls
    std::optional<std::string> error;
  };
  TestClock clock;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 16}).value();
  std::shared_ptr<WorkPool> pool = std::make_shared<WorkPool>(2);
  std::shared_ptr<MemoryPipe> there = std::make_shared<MemoryPipe>(), back = std::make_shared<MemoryPipe>();
  End a, b;

  // Another pair of streams.
  void renew() {
    a = {};
    b = {};
    there = std::make_shared<MemoryPipe>();
    back = std::make_shared<MemoryPipe>();
  }
  void make(MemoryStream::Limits portions = {}, PackedStream::Limits limits = {}) {
    make_end(a, back, there, portions, limits);
    make_end(b, there, back, portions, limits);
  }
  void make_end(End& end, std::shared_ptr<MemoryPipe> in, std::shared_ptr<MemoryPipe> out,
                MemoryStream::Limits portions, PackedStream::Limits limits) {
    auto below = std::make_unique<MemoryStream>(std::move(in), std::move(out), portions);
    end.below = below.get();
    end.stream = std::make_unique<PackedStream>(*loop, std::move(below), pool, limits);
    end.stream->start(Stream::readable, {[](Status) {},
                                         [&end](unsigned ready) {
                                           if (ready & Stream::writable) ++end.writable;
                                           if (ready & Stream::readable) read(end);
                                         }});
  }
  void frames(CodecSet accepted = CodecSet::all()) {
    ASSERT_TRUE(a.stream->begin_frames(CodecSet::all(), CodecSet::all(), {}));
    ASSERT_TRUE(b.stream->begin_frames(accepted, CodecSet::all(), {}));
  }
  static void read(End& end) {
    Bytes room(300'000);
    iovec iov[2] = {{room.data(), 1000}, {room.data() + 1000, room.size() - 1000}};
    auto got = end.stream->read(iov);
    if (!got) {
      end.error = got.error().message;
      end.stream->close();
      return;
    }
    end.ended = end.ended || got->ended;
    end.got.insert(end.got.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(got->bytes));
    if (got->ended) end.stream->want(0);
  }
  std::size_t write(End& end, ByteSpan bytes) {
    std::size_t half = bytes.size() / 2;
    iovec iov[2] = {{const_cast<std::byte*>(bytes.data()), half},
                    {const_cast<std::byte*>(bytes.data()) + half, bytes.size() - half}};
    auto done = end.stream->write(iov);
    EXPECT_TRUE(done);
    bool all = !done || *done == bytes.size();
    end.stream->want(all ? unsigned{Stream::readable} : Stream::readable | Stream::writable);
    return done ? *done : 0;
  }
  void turn() {
    bool moved = a.below->turn();
    moved |= b.below->turn();
    ASSERT_TRUE(loop->turn(moved ? Duration(0) : Duration(std::chrono::milliseconds(1))));
  }
  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) ASSERT_NO_FATAL_FAILURE(turn());
  }
  // As a connection does: what is not accepted waits for room.
  void send_all(End& from, const Bytes& all, std::size_t portion) {
    for (std::size_t at = 0; at < all.size();) {
      std::size_t n = write(from, ByteSpan(all).subspan(at, std::min(portion, all.size() - at)));
      at += n;
      if (n > 0) continue;
      unsigned before = from.writable;
      run_until([&] { return from.writable > before; });
    }
  }
};

TEST_F(PackedStreamTest, BytesPassAsTheyAreUntilFramesBegin) {
  make();
  Bytes text = some_text(1000);
  EXPECT_EQ(write(a, text), 1000u);
  EXPECT_EQ(there->waiting(), 1000u);
  run_until([&] { return b.got.size() == 1000; });
  EXPECT_TRUE(b.got == text);
  EXPECT_FALSE(a.stream->has_frames());
}

TEST_F(PackedStreamTest, WhatWasReadTooFarBelongsToTheFrames) {
  make();
  ASSERT_TRUE(a.stream->begin_frames(CodecSet::all(), CodecSet::all(), {}));
  Bytes text = some_text(5000);
  a.stream->set_packing({Method{Codec::zstd, 0}});
  EXPECT_EQ(write(a, text), 5000u);
  run_until([&] { return there->waiting() > 0; });
  Bytes received = std::exchange(there->bytes, {});
  ASSERT_TRUE(b.stream->begin_frames(CodecSet::all(), CodecSet::all(), received));
  run_until([&] { return b.got.size() == 5000; });
  EXPECT_TRUE(b.got == text);
  EXPECT_EQ(b.stream->packing_status().in_line, there->written);
}

TEST_F(PackedStreamTest, WithoutACodecEachFrameCostsItsHeader) {
  make();
  frames();
  Bytes text = some_text(compress::raw_bytes_max + 10);
  EXPECT_EQ(write(a, text), text.size());
  EXPECT_EQ(a.below->calls, 1u);
  EXPECT_EQ(there->waiting(), text.size() + 2 * compress::header_bytes);
  run_until([&] { return b.got.size() == text.size(); });
  EXPECT_TRUE(b.got == text);
}

TEST_F(PackedStreamTest, EveryCodecInBothDirectionsAndAnySplit) {
  for (Codec codec : compress::all_codecs) {
    for (std::size_t portion : {std::size_t{SIZE_MAX}, std::size_t{70'000}, std::size_t{999}}) {
      renew();
      make({portion, portion, portion == SIZE_MAX ? portion : 2 * portion});
      frames();
      a.stream->set_packing({Method{codec, 0}, LinkClass::bulk});
      b.stream->set_packing({Method{codec, 0}});
      Bytes text = some_text(700'000, 3), other = some_text(50'000, 4);
      std::mt19937 random(5);
      for (std::size_t at = 0; at < text.size();) {
        std::size_t n = std::min<std::size_t>(text.size() - at, 1 + random() % 90'000);
        send_all(a,
                 Bytes(text.begin() + static_cast<std::ptrdiff_t>(at),
                       text.begin() + static_cast<std::ptrdiff_t>(at + n)),
                 n);
        at += n;
      }
      send_all(b, other, 7000);
      run_until([&] { return b.got.size() >= text.size() && a.got.size() >= other.size(); });
      EXPECT_TRUE(b.got == text && a.got == other) << name_of(codec) << " " << portion;
      EXPECT_TRUE(codec == Codec::none || there->written < text.size() * 3 / 4) << name_of(codec);
      EXPECT_EQ(a.stream->packing_status().out_raw, text.size());
      EXPECT_EQ(a.stream->packing_status().out_line, there->written);
      EXPECT_EQ(b.stream->packing_status().in_raw, text.size());
      EXPECT_EQ(b.stream->packing_status().in_line, there->written);
    }
  }
}

TEST_F(PackedStreamTest, TheCodecChangesWhileItRuns) {
  make();
  frames();
  Bytes all;
  for (unsigned i = 0; i < 40; ++i) {
    a.stream->set_packing(
        {Method{compress::all_codecs[i % 5], 0}, i % 2 ? LinkClass::bulk : LinkClass::latency});
    Bytes text = some_text(i % 3 == 0 ? 50 : 30'000, i);
    send_all(a, text, 9000);
    all.insert(all.end(), text.begin(), text.end());
  }
  run_until([&] { return b.got.size() == all.size(); });
  EXPECT_TRUE(b.got == all);
}

TEST_F(PackedStreamTest, AFullStreamAcceptsNoMoreAndSaysWhenItHasRoom) {
  make({.room = 10'000}, {.unsent_bytes = 100'000});
  b.stream->want(0);
  frames();
  a.stream->set_packing({Method{Codec::lz4, 0}});
  Bytes text = some_text(4 << 20, 9);
  std::size_t accepted = 0;
  for (int i = 0; i < 200; ++i) {
    accepted += write(
        a, ByteSpan(text).subspan(accepted, std::min<std::size_t>(50'000, text.size() - accepted)));
    ASSERT_NO_FATAL_FAILURE(turn());
  }
  // Two frames for each thread at least.
  EXPECT_LE(accepted, (2 * 2 + 2) * compress::raw_bytes_max);
  EXPECT_TRUE(a.stream->has_unsent());
  unsigned before = a.writable;
  b.stream->want(Stream::readable);
  run_until([&] { return a.writable > before; });
  send_all(a, Bytes(text.begin() + static_cast<std::ptrdiff_t>(accepted), text.end()), 50'000);
  run_until([&] { return b.got.size() == text.size(); });
  EXPECT_TRUE(b.got == text);
  EXPECT_FALSE(a.stream->has_unsent());
}

TEST_F(PackedStreamTest, AnOwnerThatReadsLateLosesNothing) {
  make({.room = 20'000}, {.unsent_bytes = 2 << 20, .undecoded_bytes = 300'000});
  frames();
  a.stream->set_packing({Method{Codec::zstd, 0}});
  b.stream->want(0);
  Bytes text(8 << 20);  // zeros: a few bytes on the line are much content
  std::size_t accepted = 0;
  for (int i = 0; i < 300; ++i) {
    accepted += write(
        a, ByteSpan(text).subspan(accepted, std::min<std::size_t>(100'000, text.size() - accepted)));
    ASSERT_NO_FATAL_FAILURE(turn());
  }
  b.stream->want(Stream::readable);
  send_all(a, Bytes(text.size() - accepted), 100'000);
  run_until([&] { return b.got.size() == text.size(); });
}

TEST_F(PackedStreamTest, TheEndOfTheOutputComesBehindAllBytes) {
  make();
  frames();
  a.stream->set_packing({Method{Codec::xz, 0}});
  Bytes text = some_text(300'000);
  EXPECT_EQ(write(a, text), text.size());
  a.stream->end_output();
  run_until([&] { return b.ended; });
  EXPECT_TRUE(b.got == text);
}

TEST_F(PackedStreamTest, WhatAPoolHasIsSentAtTheEndAsItIs) {
  make();
  frames();
  a.stream->set_packing({Method{Codec::xz, 9}});
  Bytes text = some_text(1'500'000);
  EXPECT_EQ(write(a, text), text.size());
  a.stream->close();
  run_until([&] { return b.ended; });
  EXPECT_TRUE(b.got == text);
}

TEST_F(PackedStreamTest, AStreamMayEndWhileAPoolWorksForIt) {
  for (int i = 0; i < 20; ++i) {
    renew();
    make();
    frames();
    a.stream->set_packing({Method{Codec::xz, 0}, LinkClass::bulk});
    write(a, some_text(600'000));
    if (i % 2) {
      ASSERT_NO_FATAL_FAILURE(turn());
    }
    a.stream.reset();
    a.below = nullptr;
  }
  pool.reset();  // joins its threads
  make_end(a, back, there, {}, {});
}

TEST_F(PackedStreamTest, AFrameOfACodecThatWasNotOfferedEndsTheStream) {
  make();
  frames(CodecSet(1u << 1));
  a.stream->set_packing({Method{Codec::zstd, 0}});
  write(a, some_text(5000));
  run_until([&] { return b.error.has_value(); });
  EXPECT_EQ(*b.error, "a frame of codec 2, which this side has not offered");
}

TEST_F(PackedStreamTest, ACodecThatTheOtherSideLacksIsNotUsed) {
  make();
  ASSERT_TRUE(a.stream->begin_frames(CodecSet::all(), CodecSet(1u << 1), {}));
  ASSERT_TRUE(b.stream->begin_frames(CodecSet(1u << 1), CodecSet::all(), {}));
  a.stream->set_packing({Method{Codec::zstd, 0}});
  EXPECT_TRUE(a.stream->packing_status().peer_lacks_codec);
  Bytes text = some_text(5000);
  write(a, text);
  run_until([&] { return b.got.size() == text.size(); });
  EXPECT_EQ(there->written, text.size() + compress::header_bytes);
  a.stream->set_packing({Method{Codec::lz4, 0}});
  EXPECT_FALSE(a.stream->packing_status().peer_lacks_codec);
}

TEST_F(PackedStreamTest, ADamagedFrameIsAnError) {
  for (Codec codec : {Codec::lz4, Codec::zstd, Codec::zlib, Codec::xz}) {
    renew();
    make();
    frames();
    compress::FrameHeader header{codec, 5000, 100};
    auto bytes = encode_frame_header(header);
    there->bytes.assign(bytes.begin(), bytes.end());
    there->bytes.resize(compress::header_bytes + 100, std::byte{0xfe});
    run_until([&] { return b.error.has_value(); });
    EXPECT_EQ(*b.error, std::string("a damaged frame of codec ") + name_of(codec));
  }
}

TEST_F(PackedStreamTest, ContentBeforeADamagedFrameArrives) {
  make();
  frames();
  a.stream->set_packing({Method{Codec::zstd, 0}});
  Bytes text = some_text(5000);
  write(a, text);
  run_until([&] { return there->waiting() > 0 || !b.got.empty(); });
  there->bytes.resize(there->bytes.size() + 12, std::byte{0x11});
  run_until([&] { return b.error.has_value(); });
  EXPECT_EQ(*b.error, "bytes that are no frame");
  EXPECT_TRUE(b.got == text);
}

TEST_F(PackedStreamTest, AnErrorOfTheStreamBelowIsReported) {
  make();
  frames();
  a.stream->set_packing({Method{Codec::lz4, 0}});
  Bytes text = some_text(5000);
  a.below->fails_at = 0;
  write(a, text);  // accepted, and compressed before the stream below is written
  run_until([&] { return a.error.has_value(); });
  EXPECT_EQ(*a.error, "broken by the test");
}

// What the stream below has announced once is read, also if the owner gets decoded frames meanwhile.
TEST_F(PackedStreamTest, AStreamBelowThatAnnouncesOnceIsReadToItsEnd) {
  for (unsigned round = 0; round < 20; ++round) {
    renew();
    make();
    b.below->announces_once = true;
    frames();
    a.stream->set_packing({Method{Codec::lz4, 0}});
    Bytes text = some_text(3'000'000, round);
    send_all(a, text, 700'000);
    while (a.stream->has_unsent()) {
      a.below->turn();
      ASSERT_TRUE(loop->turn(Duration(0)));
    }
    // Frames of many small writes come one by one, and b reads several at a time.
    run_until([&] { return b.got.size() == text.size(); });
    EXPECT_TRUE(b.got == text);
  }
}

TEST_F(PackedStreamTest, NobodyIsCalledForAnEndWhileAPoolWorks) {
  make();
  frames();
  a.stream->set_packing({Method{Codec::zlib, 0}});
  Bytes text = some_text(200'000);
  write(a, text);
  run_until([&] { return !a.stream->has_unsent(); });
  a.stream->close();
  pool->hold(true);
  std::size_t calls = 0;
  for (int i = 0; i < 50; ++i) {
    std::size_t before = b.below->calls;
    ASSERT_NO_FATAL_FAILURE(turn());
    calls += b.below->calls - before;
  }
  EXPECT_LT(calls, 5u);
  EXPECT_TRUE(b.got.empty() && !b.ended);
  pool->hold(false);
  run_until([&] { return b.ended; });
  EXPECT_TRUE(b.got == text);
}

TEST_F(PackedStreamTest, AFrameThatAPoolDoesNotComeToGoesAsItIs) {
  make();
  frames();
  a.stream->set_packing({Method{Codec::zlib, 0}});
  pool->hold(true);
  Bytes text = some_text(50'000), all;
  for (int i = 0; i < 2; ++i) {
    write(a, text);
    all.insert(all.end(), text.begin(), text.end());
  }
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(turn());
  EXPECT_EQ(there->written, 0u);
  a.stream->hurry();
  run_until([&] { return b.got.size() == text.size(); });
  EXPECT_EQ(a.stream->line_bytes_sent(), text.size() + compress::header_bytes);
  pool->hold(false);
  run_until([&] { return b.got.size() == all.size(); });
  EXPECT_TRUE(b.got == all);
  EXPECT_LT(there->written, all.size());
}

// Each hurried frame leaves room, and stays in the pool.
TEST_F(PackedStreamTest, HurriedFramesDoNotFillThePool) {
  make();
  frames();
  a.stream->set_packing({Method{Codec::zlib, 0}});
  pool->hold(true);
  Bytes text = some_text(compress::raw_bytes_max), all;
  for (int i = 0; i < 60; ++i) {
    std::size_t n = write(a, text);
    all.insert(all.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n));
    a.stream->hurry();
    ASSERT_NO_FATAL_FAILURE(turn());
  }
  EXPECT_LE(pool->waiting(), 8u + 2 * 2);
  pool->hold(false);
  run_until([&] { return b.got.size() == all.size(); });
  EXPECT_TRUE(b.got == all);
}

TEST_F(PackedStreamTest, NothingOvertakesAFrameThatIsDecompressed) {
  make();
  frames();
  Bytes text = some_text(5000), more = some_text(300, 2);
  a.stream->set_packing({Method{Codec::zlib, 0}});
  write(a, text);
  while (a.stream->has_unsent()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
  a.stream->set_packing({Method{}});
  write(a, more);
  write(a, more);
  pool->hold(true);
  for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(turn());
  EXPECT_TRUE(b.got.empty());
  pool->hold(false);
  run_until([&] { return b.got.size() == text.size() + 2 * more.size(); });
  text.insert(text.end(), more.begin(), more.end());
  text.insert(text.end(), more.begin(), more.end());
  EXPECT_TRUE(b.got == text);
}

// Each has a few bytes of content, and much more memory.
TEST_F(PackedStreamTest, ManySmallFramesHoldUpTheInput) {
  make({.read_max = 4096});
  frames();
  pool->hold(true);
  compress::Coder coder;
  Bytes raw(200), packed(199);
  packed.resize(coder.pack({Codec::zlib, 0}, raw, packed));
  auto header = compress::encode_frame_header({Codec::zlib, 200, static_cast<std::uint32_t>(packed.size())});
  constexpr unsigned count = 20'000;
  for (unsigned i = 0; i < count; ++i) {
    there->bytes.insert(there->bytes.end(), header.begin(), header.end());
    there->bytes.insert(there->bytes.end(), packed.begin(), packed.end());
  }
  std::size_t all = there->waiting();
  for (int i = 0; i < 100; ++i) ASSERT_NO_FATAL_FAILURE(turn());
  EXPECT_LT(all - there->waiting(), 150'000u) << "2 MiB are 3000 of them at most";
  EXPECT_TRUE(b.stream->is_decoding());
  pool->hold(false);
  run_until([&] { return b.got.size() == count * raw.size(); });
}

TEST_F(PackedStreamTest, TheBandwidthHoldsUpTheOutput) {
  make();
  frames();
  clock.take();
  a.stream->set_shaping({Rate(2'000'000)});
  Bytes text = some_text(1'000'000);
  Instant begin = clock.now();
  std::size_t accepted = 0;
  while (b.got.size() < text.size()) {
    accepted += write(
        a, ByteSpan(text).subspan(accepted, std::min<std::size_t>(100'000, text.size() - accepted)));
    clock.hand = clock.hand + std::chrono::milliseconds(1);
    ASSERT_NO_FATAL_FAILURE(turn());
  }
  EXPECT_TRUE(b.got == text);
  EXPECT_GE(clock.now() - begin, std::chrono::milliseconds(500));
  EXPECT_LE(clock.now() - begin, std::chrono::milliseconds(600));
  // A limit that goes away lets everything through at once.
  a.stream->set_shaping({Rate(rate_min)});
  write(a, text);
  a.stream->set_shaping({});
  clock.hand = clock.hand + std::chrono::milliseconds(1);
  run_until([&] { return b.got.size() > text.size(); });
}

TEST_F(PackedStreamTest, BulkGetsWhatOtherLinksLeave) {
  make();
  frames();
  clock.take();
  auto all = std::make_shared<SharedBandwidth>();
  all->set_plan(BandwidthPlan(Rate(1'000'000)));
  all->look_at_clock(0, clock.now());
  a.stream->set_packing({Method{}, LinkClass::bulk});
  a.stream->set_shaping({Rate(), all});
  b.stream->set_packing({Method{}, LinkClass::latency});
  b.stream->set_shaping({Rate(), all});
  Bytes text = some_text(5'000'000);
  EXPECT_EQ(write(b, text), text.size()) << "a link that somebody waits for is not held up";
  EXPECT_EQ(all->available(clock.now()), 0u);
  clock.hand = clock.hand + std::chrono::milliseconds(50);
  write(a, text);
  EXPECT_GT(there->written, rate_min / 40) << "the least that bulk has";
  EXPECT_LE(there->written, rate_min / 10);
}

TEST(LineMeterTest, OnlyTimesWithAFullLineCount) {
  compress::Chooser chooser(1, CodecSet::all());
  LineMeter meter;
  Instant now{1'000'000'000};
  auto pass = [&](int ms) { now = now + std::chrono::milliseconds(ms); };
  // Nothing is known while the line takes everything.
  for (int i = 0; i < 100; ++i, pass(10)) meter.note(100'000, false, now, chooser);
  EXPECT_FALSE(chooser.line_rate(now));
  for (int i = 0; i < 12; ++i, pass(10)) meter.note(10'000, true, now, chooser);
  EXPECT_NEAR(chooser.line_rate(now).value(), 1e6, 1e4);
  // Writes that are accepted whole lie between.
  LineMeter cycles;
  compress::Chooser other(1, CodecSet::all());
  for (int i = 0; i < 200; ++i) {
    cycles.note(30'000, false, now, other);
    pass(5);
    cycles.note(20'000, i % 2 == 0, now, other);
    pass(5);
  }
  EXPECT_NEAR(other.line_rate(now).value(), 5e6, 1e5);
  // A pause without anything to send says nothing about the line.
  for (int i = 0; i < 30; ++i) {
    pass(5);
    meter.note_room(now);
    pass(500);
    meter.note(10'000, true, now, chooser);
    pass(10);
    meter.note(10'000, true, now, chooser);
  }
  EXPECT_NEAR(chooser.line_rate(now).value(), 1e6, 1e4);
}

}  // namespace
}  // namespace twinloft::repl::stream
