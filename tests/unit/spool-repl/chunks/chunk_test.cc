// Chunks, and what two ends of a link make of them over paths that delay, reorder and lose.
#include "twinloft/spool-repl/chunks/chunk.h"

#include <gtest/gtest.h>

#include <deque>

#include "twinloft/base/random.h"
#include "twinloft/spool-repl/chunks/chunk_input.h"
#include "twinloft/spool-repl/chunks/chunk_output.h"

namespace twinloft::repl::chunks {
namespace {

using Kind = ChunkHeader::Kind;

TEST(ChunkTest, AHeaderIsReadAsWritten) {
  for (const ChunkHeader& h :
       {ChunkHeader{Kind::data, 77, 1ull << 40, 5}, ChunkHeader{Kind::ping, 0, 0, 8},
        ChunkHeader{Kind::trial, path_trial_bytes, 0, 0}, ChunkHeader{Kind::trial_taken, 0, 0, 0},
        ChunkHeader{Kind::end, 0, 1234, 5}, ChunkHeader{Kind::leave, 0, 0, 5}})
    EXPECT_EQ(decode_chunk_header(encode_chunk_header(h)).value(), h);
}

TEST(ChunkTest, WrongHeadersAreRefused) {
  for (const ChunkHeader& h :
       {ChunkHeader{Kind::data, 0, 0, 0}, ChunkHeader{Kind::data, chunk_bytes_max + 1, 0, 0},
        ChunkHeader{Kind::data, 9, UINT64_MAX - 8, 0}, ChunkHeader{Kind::ping, 1, 0, 0},
        ChunkHeader{Kind::ping, 0, 1, 0}, ChunkHeader{Kind::trial, 5, 0, 0}, ChunkHeader{Kind{0}, 0, 0, 0},
        ChunkHeader{Kind{7}, 0, 0, 0}})
    EXPECT_EQ(decode_chunk_header(encode_chunk_header(h)).error().code, Errc::corrupt);
  auto good = encode_chunk_header({Kind::data, 77, 5, 6});
  EXPECT_FALSE(decode_chunk_header(ByteSpan(good).first(good.size() - 1)));
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{1};
    EXPECT_FALSE(decode_chunk_header(bad)) << i;
  }
}

std::vector<std::byte> bytes_of(std::size_t count, std::uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> out(count);
  random.fill(out);
  return out;
}

std::vector<std::byte> read(ChunkInput& input, std::size_t most) {
  std::vector<std::byte> out(most);
  iovec into[] = {{out.data(), most / 3}, {out.data() + most / 3, most - most / 3}};
  out.resize(input.read(into));
  return out;
}

std::size_t accept(ChunkOutput& output, std::vector<std::byte> bytes) {
  iovec from{bytes.data(), bytes.size()};
  return output.accept({&from, 1});
}

TEST(ChunkTest, TheInputPutsChunksInOrder) {
  ChunkInput input(1000);
  auto all = bytes_of(100, 1);
  auto add = [&](std::size_t at, std::size_t count) {
    return input.add(at, ByteSpan(all).subspan(at, count));
  };
  ASSERT_TRUE(add(50, 50));
  EXPECT_FALSE(input.has_bytes());
  EXPECT_EQ(read(input, 10).size(), 0u);
  ASSERT_TRUE(add(0, 20));
  ASSERT_TRUE(add(0, 20)) << "sent again, and there";
  input.end_at(100);
  std::vector<std::byte> got = read(input, 7);
  ASSERT_TRUE(add(0, 20)) << "sent again, and partly read";
  ASSERT_TRUE(add(10, 30)) << "other bounds than before";
  ASSERT_TRUE(add(30, 30));
  EXPECT_FALSE(input.is_at_end());
  for (auto more = read(input, 31); !more.empty(); more = read(input, 31))
    got.insert(got.end(), more.begin(), more.end());
  EXPECT_TRUE(got == all);
  EXPECT_TRUE(input.is_at_end());
  EXPECT_FALSE(input.has_bytes());
}

TEST(ChunkTest, TheInputHasABound) {
  ChunkInput input(100);
  std::vector<std::byte> much(101);
  EXPECT_EQ(input.add(0, much).error().code, Errc::corrupt);
  EXPECT_EQ(input.add(99, ByteSpan(much).first(2)).error().code, Errc::corrupt);
  ChunkInput wide(10'000);
  for (int again = 0; again < 3; ++again)
    for (std::size_t i = 0; i <= 60; ++i) ASSERT_TRUE(wide.add(60 - i, ByteSpan(much).first(1 + i % 40)));
  EXPECT_EQ(read(wide, 200).size(), 61u) << "each byte is kept once";
  ChunkInput large(1u << 20);
  Status last;
  for (std::size_t i = 0; i < 40'000 && last; ++i) last = large.add(1 + 2 * i, ByteSpan(much).first(1));
  EXPECT_EQ(last.error().message, "too many small chunks");
}

TEST(ChunkTest, TheOutputKeepsWhatWasNotTaken) {
  ChunkOutput output(100, 60);
  EXPECT_EQ(accept(output, bytes_of(200, 1)), 60u) << "unsent";
  auto first = output.next(1, 40);
  EXPECT_EQ(accept(output, bytes_of(200, 1)), 40u);
  EXPECT_EQ(output.room(), 0u) << "the window";
  ASSERT_TRUE(output.taken(30));
  EXPECT_EQ(output.room(), 0u) << "it is being written";
  output.finished(first);
  EXPECT_EQ(output.room(), 0u) << "whole chunks go";
  ASSERT_TRUE(output.taken(40));
  EXPECT_EQ(output.room(), 0u) << "unsent";
  output.next(2, 60);
  EXPECT_EQ(output.room(), 40u);
  EXPECT_EQ(output.taken(101).error().code, Errc::corrupt) << "more than was sent";
  ASSERT_TRUE(output.taken(3)) << "older news";
  EXPECT_FALSE(output.has_next());
  output.lost(1);
  EXPECT_FALSE(output.has_next()) << "the other path has it";
  output.lost(2);
  auto again = output.next(3, 5);
  EXPECT_EQ(again.position, 40u);
  EXPECT_EQ(again.bytes, 60u) << "in the same bounds";
  output.finished(again);
  ASSERT_TRUE(output.taken(100));
  EXPECT_EQ(output.room(), 60u);
}

// A copy of a chunk arrives over a path that is lost then, while it is written to another path.
TEST(ChunkTest, AChunkThatIsBeingWrittenKeepsItsBytes) {
  ChunkOutput output(100, 100);
  auto all = bytes_of(50, 3);
  accept(output, all);
  output.finished(output.next(1, 50));
  output.lost(1);
  auto again = output.next(2, 50);
  ASSERT_TRUE(output.taken(50));
  std::vector<std::byte> got;
  output.for_each_part(again, 20, [&](ByteSpan part) { got.insert(got.end(), part.begin(), part.end()); });
  EXPECT_TRUE(got == std::vector<std::byte>(all.begin() + 20, all.end()));
  output.finished(again);
  EXPECT_EQ(output.room(), 100u);
}

// Paths that deliver in any order, lose their end, and come again.
TEST(ChunkTest, EverythingArrivesOnceAndInOrder) {
  struct OnTheWay {
    std::uint64_t position;
    std::vector<std::byte> bytes;
  };
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SeededRandom random(seed);
    ChunkOutput output(5000, 2000);
    ChunkInput input(5000);
    auto all = bytes_of(20'000, seed);
    std::vector<std::byte> got;
    std::deque<OnTheWay> paths[3];
    std::size_t accepted = 0;
    for (int step = 0; got.size() < all.size(); ++step) {
      ASSERT_LT(step, 100'000) << seed;
      auto path = static_cast<unsigned>(random.below(3));
      switch (random.below(6)) {
        case 0:
          accepted += accept(output, {all.begin() + static_cast<std::ptrdiff_t>(accepted), all.end()});
          break;
        case 1:
          if (output.has_next()) {
            auto chunk = output.next(path, 1 + static_cast<std::uint32_t>(random.below(900)));
            OnTheWay& o = paths[path].emplace_back(OnTheWay{chunk.position, {}});
            output.for_each_part(
                chunk, 0, [&](ByteSpan part) { o.bytes.insert(o.bytes.end(), part.begin(), part.end()); });
            output.finished(chunk);
          }
          break;
        case 2:
          if (!paths[path].empty()) {
            ASSERT_TRUE(input.add(paths[path].front().position, paths[path].front().bytes));
            paths[path].pop_front();
          }
          break;
        case 3: {
          auto more = read(input, random.below(2000));
          got.insert(got.end(), more.begin(), more.end());
          break;
        }
        case 4:
          ASSERT_TRUE(output.taken(random.below(2) ? input.taken() : input.taken() / 2));
          break;
        case 5:
          if (random.below(20) == 0) {
            // A part of the next chunk had arrived.
            if (!paths[path].empty()) {
              ByteSpan next = paths[path].front().bytes;
              ASSERT_TRUE(input.add(paths[path].front().position, next.first(random.below(next.size() + 1))));
            }
            paths[path].clear();
            output.lost(path);
          }
          break;
      }
    }
    EXPECT_TRUE(got == all) << seed;
  }
}

}  // namespace
}  // namespace twinloft::repl::chunks
