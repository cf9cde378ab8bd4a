// The mark: golden bytes, a model of settled entries, and input that is damaged.
#include "twinloft/intake_log/mark.h"

#include <gtest/gtest.h>

#include <set>

#include "golden.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/base/random.h"

namespace twinloft::intake_log {
namespace {

using MarkBytes = std::vector<std::byte>;

const Uuid marked_log = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();

void seal_mark(MarkBytes& bytes) {
  store_le(bytes.data() + 8, std::uint32_t{0});
  store_le(bytes.data() + 8, crc32c(bytes));
}

Mark decoded(const Mark& mark) {
  auto again = Mark::decode(mark.encode(), mark.incarnation());
  EXPECT_TRUE(again) << again.error().message;
  return again ? *again : Mark(mark.incarnation());
}

TEST(Mark, GoldenBytes) {
  expect_golden("intake-mark-empty", Mark(marked_log).encode());
  Mark mark(marked_log, 70);
  for (std::uint64_t entry : {72u, 73u, 127u, 128u, 300u}) mark.settle(entry);
  expect_golden("intake-mark", mark.encode());
}

TEST(Mark, ThePrefixGrowsOverSettledEntries) {
  Mark mark(marked_log);
  EXPECT_EQ(mark.prefix(), 0u);
  EXPECT_EQ(mark.end(), 0u);
  mark.settle(1);
  EXPECT_EQ(mark.prefix(), 0u);
  EXPECT_EQ(mark.end(), 2u);
  EXPECT_FALSE(mark.is_settled(0));
  EXPECT_TRUE(mark.is_settled(1));
  mark.settle(0);
  EXPECT_EQ(mark.prefix(), 2u);
  EXPECT_EQ(mark.end(), 2u);
  EXPECT_EQ(mark.encode().size(), mark_fixed_bytes) << "nothing above the prefix";
  mark.settle(0);
  EXPECT_EQ(mark.prefix(), 2u);
}

TEST(Mark, TheBoundHolds) {
  Mark mark(marked_log);
  EXPECT_EQ(mark.room(), 445u * 64);
  for (std::uint64_t entry = 1; entry < mark.room(); ++entry) mark.settle(entry);
  EXPECT_EQ(mark.prefix(), 0u);
  EXPECT_LE(mark.encode().size(), mark_bytes_max);
  EXPECT_EQ(decoded(mark), mark);
  mark.settle(0);
  EXPECT_EQ(mark.prefix(), 445u * 64);
  EXPECT_EQ(mark.room(), 2u * 445 * 64);
  EXPECT_DEATH(mark.settle(mark.room()), "room");
}

TEST(Mark, AgreesWithAModel) {
  SeededRandom random(7);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t start = random.below(200);
    Mark mark(marked_log, start);
    std::set<std::uint64_t> settled;
    for (std::uint64_t entry = 0; entry < start; ++entry) settled.insert(entry);
    for (int step = 0; step < 300; ++step) {
      if (random.below(40) == 0) {
        const std::uint64_t end = random.below(600);
        mark.settle_below(end);
        for (std::uint64_t entry = 0; entry < end; ++entry) settled.insert(entry);
      } else {
        const std::uint64_t entry = mark.prefix() + random.below(1 + random.below(300));
        mark.settle(entry);
        settled.insert(entry);
      }
      std::uint64_t prefix = 0;
      while (settled.contains(prefix)) ++prefix;
      ASSERT_EQ(mark.prefix(), prefix);
      ASSERT_EQ(mark.end(), settled.empty() ? 0 : *settled.rbegin() + 1);
    }
    for (std::uint64_t entry = 0; entry < mark.end() + 100; ++entry)
      ASSERT_EQ(mark.is_settled(entry), settled.contains(entry)) << entry;
    ASSERT_EQ(decoded(mark), mark);
  }
}

TEST(Mark, AMergeHasWhatBothSay) {
  SeededRandom random(8);
  for (int round = 0; round < 300; ++round) {
    Mark a(marked_log, random.below(300)), b(marked_log, random.below(300));
    for (int i = 0; i < 60; ++i) {
      a.settle(a.prefix() + random.below(200));
      b.settle(b.prefix() + random.below(200));
    }
    Mark both = a;
    both.merge(b);
    for (std::uint64_t entry = 0; entry < 800; ++entry)
      ASSERT_EQ(both.is_settled(entry), a.is_settled(entry) || b.is_settled(entry));
    ASSERT_EQ(decoded(both), both);
  }
}

TEST(Mark, EveryChangedBitIsFound) {
  Mark mark(marked_log, 70);
  mark.settle(100);
  const MarkBytes bytes = mark.encode();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    MarkBytes changed = bytes;
    changed[bit / 8] ^= std::byte(1u << bit % 8);
    ASSERT_FALSE(Mark::decode(changed, marked_log)) << bit;
  }
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(Mark::decode(ByteSpan(bytes).first(size), marked_log)) << size;
}

void expect_refused(const MarkBytes& bytes, Errc code, std::string_view message) {
  auto mark = Mark::decode(bytes, marked_log);
  ASSERT_FALSE(mark) << message;
  EXPECT_EQ(mark.error().code, code);
  EXPECT_EQ(mark.error().message, message);
}

TEST(Mark, WhatIsRefusedIsSaidInWords) {
  expect_refused({}, Errc::corrupt, "this is not a mark");
  expect_refused(MarkBytes(3601), Errc::corrupt, "the mark has 3601 bytes, more than 3600");
  expect_refused(MarkBytes(36), Errc::corrupt, "this is not a mark");
  expect_refused(Mark(Uuid::parse("11111111-2222-4333-8444-555555555555").value(), 3).encode(),
                 Errc::conflict,
                 "the mark is of the log 11111111-2222-4333-8444-555555555555, and this is the log "
                 "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff");
  MarkBytes newer = Mark(marked_log, 3).encode();
  store_le(newer.data() + 4, std::uint16_t{2});
  seal_mark(newer);
  expect_refused(newer, Errc::invalid, "the mark has version 2, and this program reads version 1");
}

// The checksum is right, and the content is impossible.
TEST(Mark, ContradictionsAreRefused) {
  Mark mark(marked_log, 70);
  mark.settle(100);
  mark.settle(130);
  const MarkBytes bytes = mark.encode();
  ASSERT_EQ(bytes.size(), mark_fixed_bytes + 16);
  auto changed = [&](std::size_t offset, std::uint64_t value, std::size_t width) {
    MarkBytes out = bytes;
    std::memcpy(out.data() + offset, &value, width);
    seal_mark(out);
    return out;
  };
  const char* contradiction = "the mark contradicts itself";
  expect_refused(changed(6, 1, 2), Errc::corrupt, contradiction);       // fewer words
  expect_refused(changed(6, 0xffff, 2), Errc::corrupt, contradiction);  // more words
  expect_refused(changed(28, ~std::uint64_t{0}, 8), Errc::corrupt, contradiction);
  expect_refused(changed(28, 71, 8), Errc::corrupt, contradiction);  // the prefix does not fit the bits
  expect_refused(changed(44, 0, 8), Errc::corrupt, contradiction);   // an empty word at the end
  expect_refused(changed(36, 0, 8), Errc::corrupt, contradiction);   // entries below the prefix not settled
}

}  // namespace
}  // namespace twinloft::intake_log
