#include "twinloft/spool-repl/journal/cut.h"

#include <stdexcept>

#include "replica.h"

namespace twinloft::repl::journal {
namespace {

constexpr Lsn no_lsn{UINT64_MAX};

class Cut : public testing::Test {
 protected:
  using Parts = std::vector<Part>;

  // Appends a record, and saves the model's content after it.
  Written write(const Parts& parts) {
    Written w = r.append(parts);
    r.apply(parts);
    states.emplace_back(w.mark.lsn, r.model);
    return w;
  }
  void bring_home(std::uint64_t lba, std::uint64_t blocks) {
    auto at = static_cast<std::ptrdiff_t>(lba * block_size),
         n = static_cast<std::ptrdiff_t>(blocks * block_size);
    std::copy_n(r.model.begin() + at, n, r.data.bytes.begin() + at);
  }
  const std::vector<std::byte>& state(Lsn lsn) {
    for (auto& [at, content] : states)
      if (at == lsn) return content;
    ADD_FAILURE() << "no state of LSN " << lsn.v;
    return r.model;
  }
  std::vector<std::byte> image(const History& h, Lsn lsn) {
    MemoryFile out(std::vector<std::byte>(volume_blocks * block_size));
    auto done = h.write_image(lsn, out);
    EXPECT_TRUE(done) << done.error().message;
    return out.bytes;
  }
  void expect_all_cuts(const History& h, Lsn first, Lsn last) {
    EXPECT_EQ(h.first(), first);
    EXPECT_EQ(h.last(), last);
    for (auto& [lsn, content] : states) {
      if (lsn < first || lsn > last)
        EXPECT_FALSE(h.check(lsn)) << lsn.v;
      else
        EXPECT_EQ(image(h, lsn), content) << "cut at LSN " << lsn.v;
    }
  }
  History open() {
    r.forget_writes();
    auto h = History::open(r.journal, r.data);
    if (!h) throw std::runtime_error(h.error().message);
    EXPECT_EQ(r.writes(), 0u) << "reading changes nothing";
    return std::move(*h);
  }

  Replica r;
  std::vector<std::pair<Lsn, std::vector<std::byte>>> states{{Lsn{0}, r.model}};
};

TEST_F(Cut, AnEmptyJournalAllowsItsTailOnly) {
  expect_all_cuts(open(), Lsn{0}, Lsn{0});
}

TEST_F(Cut, EveryRecordEndWhoseBlocksHaveAnEarlierVersionCanBeCut) {
  write({{1, 2, 0x11}, {7, 1, 0x12}});
  Written two = write({{2, 1, 0x22}, {50, 3, 0x23}});
  write({{1, 1, 0x31}});
  write({{7, 1, 0x41}, {50, 2, -1}});
  Written last = write({{51, 2, 0x51}});
  // The cuts are the same, whichever blocks are home.
  expect_all_cuts(open(), two.mark.lsn, last.mark.lsn);
  bring_home(0, volume_blocks);
  expect_all_cuts(open(), two.mark.lsn, last.mark.lsn);
}

TEST_F(Cut, AnImageIsReadAtAnyPlace) {
  write({{1, 2, 0x11}, {7, 4, 0x12}, {60, 9, -1}});
  bring_home(0, 9);  // the other blocks are not home
  Written last = write({{8, 1, 0x22}, {9, 1, -1}});
  History h = open();
  auto image = h.image(last.mark.lsn);
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ(image->size_bytes(), r.model.size());
  for (std::uint64_t first = 0; first < volume_blocks; ++first)
    for (std::uint64_t n : {std::uint64_t{1}, std::uint64_t{3}, volume_blocks - first}) {
      AlignedBuffer out(n * block_size);
      if (first + n > volume_blocks) continue;
      ASSERT_TRUE(image->read(first * block_size, out.span()));
      ASSERT_TRUE(std::equal(out.span().begin(), out.span().end(),
                             r.model.begin() + static_cast<std::ptrdiff_t>(first * block_size)))
          << n << " blocks at " << first;
    }
  r.data.fails = [](std::uint64_t, std::uint64_t, bool) { return true; };
  AlignedBuffer out(block_size);
  EXPECT_TRUE(image->read(8 * block_size, out.span())) << "an error of the journal";
  EXPECT_FALSE(image->read(7 * block_size - block_size, out.span()));
}

TEST_F(Cut, ABlockWrittenForTheFirstTimeEndsTheRange) {
  write({{1, 1, 0x11}});
  write({{1, 1, 0x22}});
  Written last = write({{1, 1, 0x33}, {9, 1, 0x34}});
  expect_all_cuts(open(), last.mark.lsn, last.mark.lsn);
  auto refused = open().check(Lsn{2});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(fails_with(refused.error(), Errc::invalid, {"LSN 2", "from LSN 4 to 4", "--base"}));
}

TEST_F(Cut, RefusesWhatLiesWithinARecordOrBehindTheEnd) {
  write({{1, 1, 0x11}, {3, 1, 0x12}, {5, 1, 0x13}});
  write({{1, 1, 0x21}, {3, 1, 0x22}});
  write({{1, 1, 0x31}});
  History h = open();
  EXPECT_TRUE(fails_with(h.check(Lsn{4}).error(), Errc::invalid,
                         {"within the record of LSN 4 to 5", "cut at 3 or 5"}));
  EXPECT_TRUE(fails_with(h.check(Lsn{7}).error(), Errc::invalid, {"ends at LSN 6", "from LSN 3 to 6"}));
  EXPECT_FALSE(h.check(no_lsn));
}

TEST_F(Cut, BehindAMovedTailTheDataAreaCounts) {
  write({{1, 2, 0x11}});
  write({{4, 4, 0x22}});
  r.move_tail_to_head();
  Lsn tail = r.last.lsn;
  write({{4, 1, 0x33}});
  Written last = write({{4, 1, 0x44}});
  expect_all_cuts(open(), tail + 1, last.mark.lsn);
}

TEST_F(Cut, ATornTailIsLeftOut) {
  write({{1, 1, 0x11}});
  Written kept = write({{1, 1, 0x22}});
  Lsn durable = r.last.lsn;
  Written torn = r.append({{1, 1, 0x33}}, durable, durable);
  r.append({{1, 1, 0x44}}, durable, durable);
  r.journal.bytes[torn.offset + block_size] ^= std::byte{1};
  expect_all_cuts(open(), Lsn{1}, kept.mark.lsn);
}

TEST_F(Cut, OfADamagedJournalNothingIsCut) {
  Written damaged = write({{1, 1, 0x11}});
  write({{1, 1, 0x22}});
  r.journal.bytes[damaged.offset + block_size] ^= std::byte{1};
  auto h = History::open(r.journal, r.data);
  ASSERT_FALSE(h);
  EXPECT_TRUE(fails_with(h.error(), Errc::corrupt, {"no cut is possible", "damaged after LSN 0"}));
}

TEST_F(Cut, OfAnInconsistentReplicaNothingIsCut) {
  r.sb.disk = disk_state::Syncing{{4, volume}, std::nullopt};
  r.sb.generation++;
  ASSERT_TRUE(store_superblock(r.journal, r.sb));
  auto h = History::open(r.journal, r.data);
  ASSERT_FALSE(h);
  EXPECT_TRUE(fails_with(h.error(), Errc::conflict, {"Inconsistent", "resync"}));
}

TEST_F(Cut, OfAnotherReplicasDataAreaNothingIsCut) {
  Replica other;
  DataLabel label{volume, 3, volume_blocks};
  encode_data_label(label, MutableByteSpan(other.data.bytes).last(block_size));
  auto h = History::open(r.journal, other.data);
  ASSERT_FALSE(h);
  EXPECT_TRUE(fails_with(h.error(), Errc::conflict, {"replica 3"}));
}

// ---- with a base

class BaseCut : public Cut {
 protected:
  void save_base() {
    base_journal = std::make_unique<MemoryFile>(r.journal.bytes, "base.j");
    base_data = std::make_unique<MemoryFile>(r.data.bytes, "base.d");
    base_states = states.size();
  }
  Result<History> open_with_base() {
    r.forget_writes();
    auto h = History::open(r.journal, *base_journal, *base_data);
    EXPECT_EQ(r.writes() + base_journal->writes + base_data->writes, 0u);
    return h;
  }
  // Until the whole ring is overwritten, including the base's records.
  void go_round(std::uint64_t bytes) {
    for (std::uint64_t from = r.head.v; r.head.v - from < bytes; r.move_tail_to_head())
      for (int i = 0; i < 4; ++i) write({{100, 90, ++value_ % 250}});
  }

  std::unique_ptr<MemoryFile> base_journal, base_data;
  std::size_t base_states = 0;

 private:
  int value_ = 0;
};

TEST_F(BaseCut, AllowsEveryRecordThatIsStillInTheRing) {
  write({{1, 2, 0x11}});
  write({{30, 2, 0x12}});
  r.move_tail_to_head();
  Lsn base = r.last.lsn;
  save_base();
  write({{1, 1, 0x21}, {60, 5, 0x22}});
  write({{61, 2, -1}});
  r.move_tail_to_head();
  write({{30, 1, 0x31}});
  Written last = write({{90, 1, 0x41}});
  auto h = open_with_base();
  ASSERT_TRUE(h) << h.error().message;
  expect_all_cuts(*h, base, last.mark.lsn);
}

TEST_F(BaseCut, OfTheBaseTheSameRuleHolds) {
  write({{1, 1, 0x11}});
  write({{2, 1, 0x22}});
  bring_home(2, 1);
  save_base();
  Lsn first = r.last.lsn;
  write({{1, 1, 0x31}});
  r.move_tail_to_head();
  auto h = open_with_base();
  ASSERT_TRUE(h);
  expect_all_cuts(*h, first, r.last.lsn);
}

TEST_F(BaseCut, TakesFromTheBaseWhatTheRingHasLost) {
  write({{1, 1, 0x11}});
  r.move_tail_to_head();
  Lsn base = r.last.lsn;
  write({{1, 1, 0x12}});
  write({{1, 1, 0x13}});
  std::vector<std::byte> data_of_then = r.data.bytes;
  save_base();
  Written first = write({{1, 1, 0x14}});
  // The ring is overwritten up to the last record that the base also has.
  std::uint64_t lap = r.sb.ring_bytes;
  while (r.head.v < lap + 2 * block_size) write({{100, 50, 0x55}});
  r.move_tail_to_head();
  (void)first;
  auto h = open_with_base();
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->first(), base + 1);  // 0x12 may be in the base's data area
  EXPECT_EQ(image(*h, base + 1), state(base + 1));
}

TEST_F(BaseCut, WhereTheRingWasWrittenOverItSaysSo) {
  write({{1, 1, 0x11}});
  write({{1, 1, 0x12}});
  r.move_tail_to_head();
  Lsn base = r.last.lsn;
  save_base();
  go_round(2 * r.sb.ring_bytes);
  auto h = open_with_base();
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->first(), base);
  EXPECT_EQ(h->last(), base);
  EXPECT_EQ(image(*h, base), state(base));
  auto refused = h->check(base + 1);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(fails_with(refused.error(), Errc::invalid, {"from LSN 2 to 2", "overwritten", "later base"}));
}

TEST_F(BaseCut, ATailThatWasCutOffDoesNotComeBack) {
  write({{1, 1, 0x11}});
  r.move_tail_to_head();
  Lsn base = r.last.lsn;
  Replica fork = r;
  fork.append({{1, 1, 0x66}}, base, base);  // this record was never committed
  base_journal = std::make_unique<MemoryFile>(fork.journal.bytes, "base.j");
  base_data = std::make_unique<MemoryFile>(fork.data.bytes, "base.d");
  Written last = write({{1, 1, 0x22}});
  auto h = open_with_base();
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->last(), last.mark.lsn);
  EXPECT_EQ(image(*h, last.mark.lsn), state(last.mark.lsn));
  // If the journal has no longer its own record, the base's uncommitted record must not take its place.
  go_round(2 * r.sb.ring_bytes);
  h = open_with_base();
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_FALSE(h->check(base + 1));
}

TEST_F(BaseCut, OfAnotherJournalOrOfALaterTimeIsRefused) {
  save_base();
  write({{1, 1, 0x11}});
  r.move_tail_to_head();
  auto exchanged = History::open(*base_journal, r.journal, r.data);
  ASSERT_FALSE(exchanged);
  EXPECT_TRUE(fails_with(exchanged.error(), Errc::conflict, {"newer", "swap"}));
  Superblock sb = r.sb;
  sb.replica = 5;
  ASSERT_TRUE(store_superblock(*base_journal, sb));
  auto other = History::open(r.journal, *base_journal, *base_data);
  ASSERT_FALSE(other);
  EXPECT_TRUE(fails_with(other.error(), Errc::conflict, {"replica 5"}));
}

// ---- the listing

TEST_F(Cut, TheListingSaysWhatRecoveryWouldKeep) {
  write({{1, 1, 0x11}});
  r.move_tail_to_head();
  Written a = write({{2, 1, 0x12}, {9, 3, -1}});
  Lsn durable = a.mark.lsn;
  Written b = r.append({{3, 1, 0x13}}, durable, durable);
  Written torn = r.append({{4, 1, 0x14}}, durable, durable);
  Written behind = r.append({{5, 1, 0x15}}, durable, durable);
  r.journal.bytes[torn.offset] ^= std::byte{1};
  auto l = list_journal(r.journal);
  ASSERT_TRUE(l) << l.error().message;
  ASSERT_EQ(l->records.size(), 2u);
  EXPECT_EQ(l->records[0].frame.pos, a.pos);
  EXPECT_EQ(l->records[0].body.extents.size(), 2u);
  EXPECT_EQ(l->records[1].frame.commit_lsn, durable);
  EXPECT_EQ(l->last, b.mark);
  EXPECT_EQ(l->commit, durable);
  EXPECT_EQ(l->end.v, torn.pos.v);
  ASSERT_EQ(l->behind.size(), 1u);
  EXPECT_EQ(l->behind[0].pos, behind.pos);
  EXPECT_FALSE(l->damage);
  EXPECT_TRUE(l->superblock_copies_agree);
}

TEST_F(Cut, TheListingShowsDamageAndRepairsNothing) {
  Written one = write({{1, 1, 0x11}});
  write({{2, 1, 0x12}});
  r.journal.bytes[one.offset + 8] ^= std::byte{1};
  r.journal.bytes[superblock_offset[1] + 20] ^= std::byte{1};
  r.forget_writes();
  auto l = list_journal(r.journal);
  ASSERT_TRUE(l) << l.error().message;
  EXPECT_FALSE(l->superblock_copies_agree);
  ASSERT_TRUE(l->damage);
  EXPECT_TRUE(fails_with(*l->damage, Errc::corrupt, {"damaged after LSN 0"}));
  EXPECT_TRUE(l->records.empty());
  EXPECT_EQ(l->behind.size(), 1u);
  EXPECT_EQ(r.writes(), 0u);
}

}  // namespace
}  // namespace twinloft::repl::journal
