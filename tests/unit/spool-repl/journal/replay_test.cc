// Content that recovery loads into memory instead of writing it home.
#include "replay.h"

#include "replica.h"
#include "twinloft/base/random.h"

namespace twinloft::repl::journal {
namespace {

class Loaded {
 public:
  Loaded(Replica& replica, std::size_t room_blocks)
      : r_(replica), room_(std::max<std::size_t>(room_blocks, 1) * block_size) {
    std::fill(room_.span().begin(), room_.span().end(), std::byte{0xee});
    auto out = recover(r_.journal, r_.data, {}, room_.span().first(room_blocks * block_size));
    EXPECT_TRUE(out) << out.error().message;
    if (out) volume = std::move(*out);
  }
  const RecoveredLog& log() const { return volume.log; }
  int value(std::size_t n) const { return std::to_integer<int>(room_.span()[n * block_size]); }

  // The volume as a reader must see it: the loaded content over the data area, in the order of the records.
  std::vector<std::byte> content() const {
    std::vector<std::byte> all(r_.data.bytes.begin(), r_.data.bytes.begin() + volume_blocks * block_size);
    auto at = [&](Lba lba) { return all.begin() + static_cast<std::ptrdiff_t>(lba.v * block_size); };
    for_each_loaded(
        log(),
        [&](std::size_t n, const LoadedBlock& b) {
          std::copy_n(room_.span().begin() + static_cast<std::ptrdiff_t>(n * block_size), block_size,
                      at(b.lba));
        },
        [&](const Extent& e, Lsn) { std::fill_n(at(e.lba), e.blocks * block_size, std::byte{0}); });
    return all;
  }

  RecoveredVolume volume;

 private:
  Replica& r_;
  AlignedBuffer room_;
};

std::vector<std::uint64_t> blocks_of(const RecoveredLog& log) {
  std::vector<std::uint64_t> out;
  for (const LoadedBlock& b : log.loaded) out.push_back(b.lba.v);
  return out;
}

TEST(Replay, WhatFitsIsLoadedAndNotWrittenHome) {
  Replica r;
  Lsn tail = r.last.lsn;
  r.append({{1, 3, 0x11}});
  r.append({{2, 1, 0x22}, {50, 4, -1}});
  Written last = r.append({{9, 1, 0x33}});
  r.append({{10, 1, 0x44}}, last.mark.lsn, last.mark.lsn);
  r.forget_writes();
  Loaded loaded(r, 100);
  EXPECT_EQ(r.data.writes, 0u);
  EXPECT_EQ(loaded.volume.report.blocks_replayed, 0u);
  EXPECT_EQ(loaded.log().home, tail);
  EXPECT_EQ(loaded.log().commit, last.mark.lsn);
  EXPECT_EQ(blocks_of(loaded.log()), (std::vector<std::uint64_t>{1, 3, 2, 9}))
      << "each block once, its newest version; no uncommitted block";
  EXPECT_EQ((std::vector{loaded.value(0), loaded.value(1), loaded.value(2), loaded.value(3)}),
            (std::vector{0x11, 0x11, 0x22, 0x33}));
  r.apply({{1, 3, 0x11}, {2, 1, 0x22}, {9, 1, 0x33}});
  EXPECT_TRUE(std::ranges::equal(loaded.content(), r.model));
}

TEST(Replay, WhatIsOlderThanFitsGoesHome) {
  Replica r;
  r.append({{1, 3, 0x11}});
  Written second = r.append({{2, 2, 0x22}});
  r.append({{7, 2, 0x33}});
  Written last = r.append({{3, 1, 0x44}});
  Written open = r.append({{100, 1, 0x55}}, last.mark.lsn, last.mark.lsn);
  Loaded loaded(r, 3 + open.blocks);
  EXPECT_EQ(loaded.volume.report.blocks_replayed, 2u)
      << "block 1 of the first record, 2 of the second; 3 was written again";
  EXPECT_EQ(loaded.log().home, second.mark.lsn) << "its only block that was not written again does not fit";
  EXPECT_EQ(blocks_of(loaded.log()), (std::vector<std::uint64_t>{7, 8, 3}));
  EXPECT_EQ(r.data.unsynced, 0u);
  EXPECT_EQ(r.data.bytes[1 * block_size], std::byte{0x11});
  EXPECT_EQ(r.data.bytes[2 * block_size], std::byte{0x22});
  EXPECT_EQ(r.data.bytes[7 * block_size], std::byte{0}) << "the block is in memory";
}

TEST(Replay, RecordsThatMayNotBeCommittedHaveTheirRoomFirst) {
  Replica r;
  Written first = r.append({{1, 3, 0x11}});
  Written open = r.append({{4, 9, 0x22}}, first.mark.lsn, first.mark.lsn);
  EXPECT_EQ(blocks_of(Loaded(r, open.blocks + 2).log()).size(), 0u);
  EXPECT_EQ(blocks_of(Loaded(r, open.blocks + 3).log()).size(), 3u);
  EXPECT_EQ(blocks_of(Loaded(r, 1).log()).size(), 0u) << "less than they take";
}

TEST(Replay, AZeroExtentTakesRoom) {
  Replica r;
  r.append({{1, 2, 0x11}});
  r.append({{1, 1, -1}, {5, 1, -1}, {9, 1, -1}});
  Written last = r.append({{20, 1, 0x33}});
  r.append({{21, 1, 0x33}}, last.mark.lsn, last.mark.lsn);
  Loaded loaded(r, 2 + 3);
  EXPECT_EQ(loaded.volume.report.blocks_replayed, 2u);
  EXPECT_EQ(blocks_of(loaded.log()), (std::vector<std::uint64_t>{20}));
  r.apply({{2, 1, 0x11}, {20, 1, 0x33}});
  EXPECT_TRUE(std::ranges::equal(loaded.content(), r.model));
}

TEST(Replay, AReadErrorWhileLoadingEndsTheStartWithNothingChanged) {
  Replica r;
  Written first = r.append({{1, 3, 0x11}});
  r.append({{9, 1, 0x33}});
  int reads = 0;
  r.journal.fails = [&](std::uint64_t at, std::uint64_t bytes, bool write) {
    return !write && at == first.offset + block_size && bytes == 3 * block_size && ++reads > 0;
  };
  auto before = r.journal.bytes;
  AlignedBuffer room(100 * block_size);
  auto out = recover(r.journal, r.data, {}, room.span());
  ASSERT_FALSE(out);
  EXPECT_TRUE(fails_with(out.error(), Errc::io, {"j.img"}));
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(r.journal.bytes, before);
}

TEST(Replay, HomeIsWhereTheMapSays) {
  Replica r;
  r.append({{1, 3, 0x11}});
  r.append({{98, 5, 0x22}, {150, 4, 0x33}});
  r.append({{99, 2, -1}, {151, 1, 0x44}});
  r.append({{10, 1, 0x55}});
  auto loaded = load_superblock(r.journal);
  ASSERT_TRUE(loaded);
  auto scan = scan_journal(r.journal, loaded->superblock);
  ASSERT_TRUE(scan);
  // The halves of the volume are exchanged.
  HomeMap map = HomeMap::of({{Lba{0}, 100, 100}, {Lba{100}, 0, 100}}).value();
  scan->log.home_map = map;
  ASSERT_TRUE(replay(r.journal, r.data, scan->log, {}));
  std::vector<int> found;
  for (std::uint64_t lba : {1, 3, 98, 99, 100, 101, 102, 150, 151, 153})
    found.push_back(std::to_integer<int>(r.data.bytes[map.at(Lba{lba}).bytes()]));
  EXPECT_EQ(found, (std::vector{0x11, 0x11, 0x22, 0, 0, 0x22, 0x22, 0x33, 0x44, 0x33}));
}

// Data area and memory together equal the model, whatever fits into memory. A later start that loads again,
// or writes everything home, has the same result.
TEST(Replay, AnyRoomAgainstAModel) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SeededRandom random(seed);
    Replica r;
    r.append_at_random(random, 40);
    for (int again = 0; again < 3; ++again) {
      Loaded loaded(r, random.below(3) == 0 ? 400 : random.below(250));
      ASSERT_TRUE(std::ranges::equal(loaded.content(), r.model)) << "seed " << seed << ", start " << again;
    }
    ASSERT_TRUE(recover(r.journal, r.data));
    ASSERT_TRUE(r.data_is_model()) << "seed " << seed;
  }
}

// Several batches (of 4096 blocks of the journal), in random order of addresses, with outdated blocks between
// them.
TEST(Replay, MuchMoreThanABatchGoesHome) {
  constexpr std::uint64_t blocks = 12000;
  Replica r(true, blocks, 64u << 20);
  SeededRandom random(7);
  for (int i = 0; r.head.v - r.sb.tail_pos.v + 100 * block_size < r.sb.ring_bytes; ++i) {
    std::vector<Part> parts;
    for (std::uint64_t at = random.below(blocks / 4); at < blocks && parts.size() < 30;
         at += 2 + random.below(blocks / 16))
      parts.push_back(
          {at, static_cast<std::uint32_t>(1 + random.below(2)), random.below(200) == 0 ? -1 : i % 251});
    if (parts.back().lba + parts.back().blocks > blocks) parts.pop_back();
    if (parts.empty()) continue;
    r.append(parts);
    r.apply(parts);
  }
  r.append({{blocks - 1, 1, 0x77}});
  auto out = recover(r.journal, r.data);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_GT(out->report.blocks_replayed, 8192u);
  EXPECT_TRUE(r.data_is_model());
}

// The same place is read twice. If the second read differs from the first, the start ends. None of it is
// served or written home.
TEST(Replay, WhatComesBackDifferentEndsTheStart) {
  for (std::size_t room_blocks : {0, 100}) {
    Replica r;
    Written first = r.append({{1, 3, 0x11}});
    r.append({{9, 1, 0x33}});
    int reads = 0;
    r.journal.fails = [&](std::uint64_t at, std::uint64_t bytes, bool write) {
      if (!write && at == first.offset + block_size && bytes == 3 * block_size && ++reads == 1)
        r.journal.bytes[at + block_size] ^= std::byte{1};
      return false;
    };
    auto data = r.data.bytes;
    AlignedBuffer room(100 * block_size);
    auto out = recover(r.journal, r.data, {}, room.span().first(room_blocks * block_size));
    ASSERT_FALSE(out);
    EXPECT_TRUE(fails_with(out.error(), Errc::io, {"a second read gave other content", "block 1 "}));
    EXPECT_EQ(r.data.bytes, data);
  }
}

// The record may be the only copy, and one read of it succeeded.
TEST(Replay, AnUncommittedRecordIsReadMoreThanOnceIfNeedBe) {
  for (int failures : {1, 5, 1000}) {
    Replica r;
    Written first = r.append({{1, 3, 0x11}});
    Written open = r.append({{9, 1, 0x33}}, first.mark.lsn, first.mark.lsn);
    int left = failures, reads = 0;
    r.journal.fails = [&](std::uint64_t at, std::uint64_t bytes, bool write) {
      bool there = !write && at <= open.offset && open.offset < at + bytes;
      return there && ++reads > 1 && left-- > 0;  // not while recovery follows the chain
    };
    auto out = recover(r.journal, r.data);
    ASSERT_EQ(out.has_value(), failures < 10);
    if (out)
      EXPECT_EQ(out->log.records.back().payload, std::vector<std::byte>(block_size, std::byte{0x33}));
    else
      EXPECT_TRUE(fails_with(out.error(), Errc::io, {"j.img", "cannot be read again"}));
  }
}

}  // namespace
}  // namespace twinloft::repl::journal
