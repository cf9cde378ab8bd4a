#include "twinloft/spool-repl/journal/recovery.h"

#include "replica.h"
#include "twinloft/base/random.h"

namespace twinloft::repl::journal {
namespace {

void damage(Replica& r, const Written& w, std::uint64_t at) {
  r.journal.bytes[w.offset + at] ^= std::byte{1};
}

// Makes one sector unreadable until it is written.
void make_unreadable(Replica& r, std::uint64_t at, bool& written) {
  r.journal.fails = [at, &written](std::uint64_t offset, std::uint64_t count, bool write) {
    bool there = offset <= at && at < offset + count;
    written = written || (there && write);
    return there && !written;
  };
}

// An empty log that begins less than 160 blocks before the ring's end.
struct ReplicaNearRingsEnd : Replica {
  ReplicaNearRingsEnd() {
    while (head.v + 160 * block_size < sb.ring_bytes) append({{0, 150, 1}});
    move_tail_to_head();
  }
};

RecoveredVolume recovered(Replica& r) {
  auto out = recover(r.journal, r.data);
  EXPECT_TRUE(out) << out.error().message;
  return out ? std::move(*out) : RecoveredVolume{};
}
testing::AssertionResult refused(Replica& r, Errc code, std::initializer_list<std::string_view> words) {
  r.forget_writes();
  auto before = r.journal.bytes, data = r.data.bytes;
  auto out = recover(r.journal, r.data);
  if (out) return testing::AssertionFailure() << "recovered " << out->report.records << " records";
  if (r.writes() != 0 || before != r.journal.bytes || data != r.data.bytes)
    return testing::AssertionFailure() << "something was written";
  return fails_with(out.error(), code, words);
}

// ---- replay

TEST(Recovery, ReplaysWhatIsCommittedAndKeepsTheRest) {
  Replica r;
  r.append({{1, 2, 0x11}});
  auto second = r.append({{2, 1, 0x22}});
  auto third = r.append({{9, 1, 0x33}}, second.mark.lsn, second.mark.lsn);
  auto out = recovered(r);
  r.apply({{1, 2, 0x11}});
  r.apply({{2, 1, 0x22}});
  EXPECT_TRUE(r.data_is_model()) << "it is unknown whether the third is committed";
  EXPECT_EQ(r.data.unsynced, 0u);
  EXPECT_EQ(out.log.commit, second.mark.lsn);
  ASSERT_EQ(out.log.records.size(), 3u);
  EXPECT_EQ(out.report.uncommitted, 1u);
  EXPECT_EQ(out.report.blocks_replayed, 2u) << "each block once, its newest version";
  EXPECT_EQ(out.log.records[2].body.mark(), third.mark);
  EXPECT_EQ(out.log.records[2].payload, std::vector<std::byte>(block_size, std::byte{0x33}));
  EXPECT_TRUE(out.log.records[0].payload.empty()) << "blocks at home need no memory";
}

TEST(Recovery, CountsUpTheIncarnation) {
  Replica r;
  r.append({{1, 1, 1}});
  auto first = recovered(r).log.superblock;
  auto second = recovered(r).log.superblock;
  EXPECT_EQ(second.incarnation, first.incarnation + 1);
  EXPECT_GT(second.generation, first.generation);
  auto stored = load_superblock(r.journal);
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->superblock, second);
}

TEST(Recovery, TwiceGivesTheSame) {
  Replica r;
  r.append({{1, 2, 0x11}, {50, 9, -1}});
  r.append({{2, 1, 0x22}});
  r.append({{9, 1, 0x33}}, Lsn{3}, Lsn{2});
  auto first = recovered(r);
  auto data = r.data.bytes;
  auto second = recovered(r);
  EXPECT_EQ(r.data.bytes, data);
  EXPECT_EQ(second.log.commit, first.log.commit);
  ASSERT_EQ(second.log.records.size(), first.log.records.size());
  for (std::size_t i = 0; i < first.log.records.size(); ++i) {
    EXPECT_EQ(second.log.records[i].body.mark(), first.log.records[i].body.mark());
    EXPECT_EQ(second.log.records[i].pos, first.log.records[i].pos);
    EXPECT_EQ(second.log.records[i].payload, first.log.records[i].payload);
  }
}

TEST(Recovery, OrderOfWritesAndZeroesAgainstAModel) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SeededRandom random(seed);
    Replica r;
    r.append_at_random(random, 60);
    recovered(r);
    ASSERT_TRUE(r.data_is_model()) << "seed " << seed;
  }
}

// Several laps of the ring, while the tail follows at random.
TEST(Recovery, WrapsAroundTheRing) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SeededRandom random(seed);
    Replica r;
    std::uint64_t kept = 0;
    for (int i = 0; i < 150; ++i) {
      auto n = static_cast<std::uint32_t>(1 + random.below(150));
      std::uint64_t lba = random.below(volume_blocks - n);
      std::uint64_t used = r.head.v - r.sb.tail_pos.v;
      if (used + 320 * block_size > r.sb.ring_bytes || random.below(20) == 0) {
        r.move_tail_to_head();
        kept = 0;
      }
      r.append({{lba, n, i}});
      r.apply({{lba, n, i}});
      kept++;
    }
    ASSERT_GT(r.head.v, 4 * r.sb.ring_bytes);
    r.append({{0, 1, 0x55}});
    auto out = recovered(r);
    EXPECT_EQ(out.report.records, kept + 1) << "seed " << seed;
    EXPECT_TRUE(r.data_is_model()) << "seed " << seed;
  }
}

TEST(Recovery, NothingOfEarlierLapsComesBack) {
  Replica r;
  for (int lap = 0; lap < 3; ++lap) {
    while (r.head.v < (lap + 1) * r.sb.ring_bytes - 200 * block_size) {
      r.append({{0, 100, lap}});
      r.apply({{0, 100, lap}});
      if (r.head.v - r.sb.tail_pos.v > r.sb.ring_bytes / 2) r.move_tail_to_head();
    }
  }
  r.move_tail_to_head();
  auto out = recovered(r);
  EXPECT_EQ(out.report.records, 0u);
  EXPECT_EQ(out.report.torn_frames, 0u);
  EXPECT_TRUE(r.data_is_model());
}

// ---- torn or damaged

TEST(Recovery, ATornLastRecordIsCutSilently) {
  Replica whole;
  whole.append({{1, 1, 1}});
  auto torn = whole.append({{2, 3, 2}});
  // Any number of sectors at its end, its beginning, and any single bit.
  for (std::uint32_t block = 0; block < torn.blocks; ++block) {
    for (bool from_the_end : {true, false}) {
      Replica r = whole;
      std::uint64_t keep = std::uint64_t{block} * block_size + 512;
      auto first = r.journal.bytes.begin() + static_cast<std::ptrdiff_t>(torn.offset);
      if (from_the_end)
        std::fill(first + static_cast<std::ptrdiff_t>(keep), first + torn.blocks * block_size, std::byte{0});
      else
        std::fill(first, first + static_cast<std::ptrdiff_t>(keep), std::byte{0});
      auto out = recovered(r);
      EXPECT_EQ(out.report.records, 1u) << "block " << block;
      EXPECT_EQ(out.log.superblock.tail.lsn, Lsn{0});
    }
  }
  for (std::uint64_t at : {0u, 20u, 50u, 64u, 100u, 190u, 4096u, 9000u, 16383u}) {
    Replica r = whole;
    damage(r, torn, at);
    EXPECT_EQ(recovered(r).report.records, 1u) << "byte " << at;
  }
}

TEST(Recovery, PaddingMayBeAnything) {
  Replica r;
  auto w = r.append({{2, 3, 2}});
  damage(r, w, 4000);
  EXPECT_EQ(recovered(r).report.records, 1u) << "the padding between body meta and payload does not matter";
}

TEST(Recovery, AHoleBeforeRecordsThatClaimNothingIsATornTail) {
  Replica r;
  auto first = r.append({{1, 1, 1}});
  auto hole = r.append({{2, 1, 2}}, first.mark.lsn, first.mark.lsn);
  r.append({{3, 1, 3}}, first.mark.lsn, first.mark.lsn);  // submitted together with the record before it
  r.append({{4, 1, 4}}, first.mark.lsn, first.mark.lsn);
  damage(r, hole, 70);
  auto out = recovered(r);
  EXPECT_EQ(out.report.records, 1u);
  EXPECT_EQ(out.report.torn_frames, 3u) << "the torn record's frame is intact, its body is not";
  EXPECT_EQ(out.log.commit, Lsn{0});
}

// A peer sends the lost record again, byte for byte. The old records after it must not come back.
TEST(Recovery, ATornTailDoesNotComeBackWhenItsHoleIsFilled) {
  Replica r;
  auto first = r.append({{1, 1, 1}});
  LogMark before = r.last;
  JournalPos at = r.head;
  auto hole = r.append({{2, 1, 2}}, first.mark.lsn, first.mark.lsn);
  r.append({{3, 1, 3}}, first.mark.lsn, first.mark.lsn);
  damage(r, hole, 70);
  auto out = recovered(r);
  ASSERT_EQ(out.report.records, 1u);
  r.sb = out.log.superblock;
  r.last = before;
  r.head = at;
  auto again = r.append({{2, 1, 2}}, first.mark.lsn, first.mark.lsn);
  EXPECT_EQ(again.mark, hole.mark);
  EXPECT_EQ(recovered(r).report.records, 2u);
}

TEST(Recovery, AHoleBeforeARecordThatSaysItWasDurableIsDamage) {
  for (bool committed : {false, true}) {
    Replica r;
    auto first = r.append({{1, 1, 1}});
    auto hole = r.append({{2, 1, 2}});
    r.append({{3, 1, 3}}, hole.mark.lsn, committed ? hole.mark.lsn : first.mark.lsn);
    damage(r, hole, 70);
    EXPECT_TRUE(refused(
        r, Errc::corrupt,
        {"j.img", "damaged after LSN 1", std::to_string(hole.offset), "LSN 2", "Nothing was changed"}));
  }
}

TEST(Recovery, DamageFarBackIsFoundByAnyLaterFrame) {
  Replica r;
  std::vector<Written> all;
  for (int i = 0; i < 40; ++i) all.push_back(r.append({{static_cast<std::uint64_t>(i), 1, i + 1}}));
  Replica last_but_one = r;
  damage(last_but_one, all[38], 5000);
  EXPECT_TRUE(refused(last_but_one, Errc::corrupt, {"damaged after LSN 38"}))
      << "the last frame says that it was durable";
  for (std::size_t i : {0u, 7u, 37u}) {
    Replica bad = r;
    damage(bad, all[i], 70);
    EXPECT_TRUE(refused(bad, Errc::corrupt, {"Nothing was changed"})) << i;
  }
  damage(r, all[39], 70);
  EXPECT_EQ(recovered(r).report.records, 39u);
}

TEST(Recovery, ACommittedRecordThatIsMissingAltogetherIsDamage) {
  Replica r;
  auto first = r.append({{1, 1, 1}});
  auto second = r.append({{2, 1, 2}});
  r.sb.commit = second.mark.lsn;
  r.sb.generation++;
  ASSERT_TRUE(store_superblock(r.journal, r.sb));
  damage(r, second, 0);
  EXPECT_TRUE(refused(r, Errc::corrupt, {"damaged after LSN 1", "up to LSN 2"}));
  damage(r, first, 0);
  EXPECT_TRUE(refused(r, Errc::corrupt, {"damaged after LSN 0"}));
}

// ---- damage that another replica can repair

TEST(Recovery, TheLogEndsBeforeTheDamageAndTheReplicaIsInconsistent) {
  Replica r;
  auto first = r.append({{1, 1, 1}});
  auto second = r.append({{2, 1, 2}}, first.mark.lsn, first.mark.lsn);
  auto hole = r.append({{3, 1, 3}}, second.mark.lsn, first.mark.lsn);
  r.append({{4, 1, 4}}, hole.mark.lsn, first.mark.lsn);
  damage(r, hole, 70);
  auto before = r.journal.bytes;
  std::optional<Damage> told;
  auto out = recover(r.journal, r.data, [&](const Damage& d) {
    told = d;
    EXPECT_EQ(r.journal.bytes, before) << "reported before any change";
    return Status();
  });
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE(told);
  EXPECT_EQ(told->after, second.mark.lsn);
  EXPECT_EQ(told->upto, hole.mark.lsn);
  EXPECT_EQ(told->offset, hole.offset);
  const Superblock& sb = out->log.superblock;
  EXPECT_EQ(out->log.records.size(), 2u);
  const auto* damaged = std::get_if<disk_state::Damaged>(&sb.disk);
  ASSERT_TRUE(damaged);
  EXPECT_EQ(damaged->until, first.mark.lsn) << "committed records, which may be partly in the data area";
  EXPECT_EQ(damaged->base.lsn, first.mark.lsn) << "only this is known to be in the data area";
  // The next start finds the same end without the damage, because the log was cut there.
  auto again = recovered(r);
  EXPECT_FALSE(again.report.damage);
  EXPECT_EQ(again.log.superblock.disk, sb.disk);
}

TEST(Recovery, WhatProvesTheDamageStaysUntilTheSuperblockTellsOfIt) {
  Replica r;
  auto first = r.append({{1, 1, 1}});
  auto hole = r.append({{2, 1, 2}}, first.mark.lsn, first.mark.lsn);
  r.append({{3, 1, 3}}, hole.mark.lsn, first.mark.lsn);
  damage(r, hole, 70);
  auto keep = [](const Damage&) { return Status(); };
  r.journal.fails = [](std::uint64_t offset, std::uint64_t, bool write) {
    return write && offset == superblock_offset[0];
  };
  EXPECT_FALSE(recover(r.journal, r.data, keep));
  r.journal.fails = nullptr;
  auto out = recover(r.journal, r.data, keep);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_TRUE(out->report.damage);
}

TEST(Recovery, NothingIsChangedWhereNoCopyOfTheDamagedJournalCanBeKept) {
  Replica r;
  auto first = r.append({{1, 1, 1}});
  r.append({{2, 1, 2}}, first.mark.lsn, first.mark.lsn);
  damage(r, first, 70);
  r.forget_writes();
  auto before = r.journal.bytes;
  auto out = recover(r.journal, r.data,
                     [](const Damage&) { return Status(fail(Errc::exhausted, "no room")); });
  ASSERT_FALSE(out);
  EXPECT_EQ(r.writes(), 0u);
  EXPECT_EQ(r.journal.bytes, before);
}

// The newest epoch here is known from the remains: the epoch's own record, a record of that epoch, or the
// superblock's table.
TEST(Recovery, DamageTellsTheNewestEpochThatWasHere) {
  const EpochChange second{{2, volume}, 1, 0b11, epoch_witnessed},
      third{{3, volume}, 2, 0b10, epoch_by_force};
  struct Case {
    int rotten;  // the index of the damaged record: data, second epoch, data, third epoch, data
    bool in_table, cut;
    EpochEntry newest;
    std::uint64_t of_commit;
  };
  for (const Case& c : {Case{0, false, false, {third.epoch, Lsn{4}, 2, 0b10, epoch_by_force}, 3},
                        Case{3, false, false, {second.epoch, Lsn{2}, 1, 0b11, epoch_witnessed}, 2},
                        Case{3, true, false, {third.epoch, Lsn{4}, 2, 0b10, epoch_by_force}, 3},
                        Case{0, false, true, {second.epoch, Lsn{2}, 1, 0b11, epoch_witnessed}, 2}}) {
    Replica r;
    std::vector<Written> all{r.append({{0, 1, 1}})};
    all.push_back(r.append_epoch(second));
    all.push_back(r.append({{1, 1, 2}}));
    if (c.in_table) r.sb.epochs.push_back({third.epoch, Lsn{4}, third.writer, third.in_sync, third.flags});
    JournalPos end = r.head;
    LogMark last = r.last;
    all.push_back(r.append_epoch(third));
    all.push_back(r.append({{2, 1, 3}}));
    if (c.cut)
      r.cut_back(last, end);
    else
      ASSERT_TRUE(store_superblock(r.journal, r.sb));
    damage(r, all[static_cast<std::size_t>(c.rotten)], 70);
    std::optional<Damage> told;
    auto out = recover(r.journal, r.data, [&](const Damage& d) {
      told = d;
      return Status();
    });
    ASSERT_TRUE(out) << out.error().message;
    ASSERT_TRUE(told);
    ASSERT_TRUE(told->newest && told->epoch) << c.rotten;
    EXPECT_EQ(told->newest, c.newest)
        << c.rotten << " " << told->newest->epoch.counter << " from " << told->newest->start.v;
    EXPECT_EQ(told->epoch->counter, c.of_commit) << c.rotten;
    const auto* damaged = std::get_if<disk_state::Damaged>(&out->log.superblock.disk);
    ASSERT_TRUE(damaged) << c.rotten;
    EXPECT_EQ(damaged->newest, told->newest);
    EXPECT_EQ(damaged->of, told->epoch);
  }
}

TEST(Recovery, AnUnreadableRecordIsDamageWhereverItIs) {
  for (int which : {0, 1, 2}) {
    Replica r;
    std::vector<Written> all;
    for (int i = 0; i < 3; ++i) all.push_back(r.append({{static_cast<std::uint64_t>(i), 1, i + 1}}));
    const Written& bad = all[static_cast<std::size_t>(which)];
    r.journal.fails = [&](std::uint64_t offset, std::uint64_t count, bool write) {
      return !write && offset <= bad.offset && bad.offset < offset + count;
    };
    std::optional<Damage> told;
    auto out = recover(r.journal, r.data, [&](const Damage& d) {
      told = d;
      return Status();
    });
    ASSERT_TRUE(out) << out.error().message;
    ASSERT_TRUE(told) << which;
    EXPECT_EQ(told->offset, bad.offset);
    EXPECT_EQ(out->report.records, static_cast<std::uint64_t>(which)) << "the part before it is readable";
    EXPECT_EQ(r.journal.bytes[bad.offset], std::byte{0}) << "written, so that it is readable from now on";
  }
}

// The record does not fit before the ring's end. The log ends there, and the sector is at the ring's
// beginning.
TEST(Recovery, AnUnreadableRecordAtTheRingsBeginningIsReadableAfterwards) {
  ReplicaNearRingsEnd r;
  auto last = r.append({{0, 100, 2}});
  auto wrapped = r.append({{0, 180, 3}});
  ASSERT_GE(wrapped.pos.v, r.sb.ring_bytes);
  std::uint64_t bad = wrapped.offset + 170 * block_size;
  bool readable = false;
  make_unreadable(r, bad, readable);
  auto out = recover(r.journal, r.data, [](const Damage&) { return Status(); });
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->log.records.back().body.mark(), last.mark);
  EXPECT_TRUE(readable);
}

TEST(Recovery, DamageBehindTheRingsEndIsFoundToo) {
  ReplicaNearRingsEnd r;
  auto hole = r.append({{0, 150, 2}});
  auto wrapped = r.append({{0, 100, 3}});
  while (wrapped.pos.v < r.sb.ring_bytes) wrapped = r.append({{0, 100, 3}});
  damage(r, hole, 70);
  EXPECT_TRUE(refused(r, Errc::corrupt, {"damaged after"}));
}

TEST(Recovery, WhatWasCutOffProvesNothing) {
  Replica r;
  auto first = r.append({{1, 1, 1}});
  JournalPos head = r.head;
  r.append({{2, 1, 2}}, first.mark.lsn, first.mark.lsn);
  auto claimed = r.append({{3, 1, 3}}, first.mark.lsn + 1, first.mark.lsn);
  auto old_bytes = r.journal.bytes;
  r.cut_back(first.mark, head);
  r.journal.bytes[first.offset + first.blocks * block_size] ^= std::byte{1};
  auto out = recovered(r);
  EXPECT_EQ(out.report.records, 1u);
  EXPECT_EQ(out.report.torn_frames, 1u);
  EXPECT_NE(r.journal.bytes[claimed.offset], old_bytes[claimed.offset]) << "the frames are erased";
  EXPECT_EQ(recovered(r).report.torn_frames, 0u);
  // Frames after the cut that belong to the new incarnation count again.
  Replica again;
  auto a = again.append({{1, 1, 1}});
  again.cut_back(a.mark, again.head);
  auto b = again.append({{2, 1, 2}});
  again.append({{3, 1, 3}});
  damage(again, b, 70);
  EXPECT_TRUE(refused(again, Errc::corrupt, {"damaged after LSN 1"}));
}

// A record took the place of a cut one, but did not fit before the ring's end. The superblock has the last
// cut only, and each start is a cut. So nothing distinguishes the old record, at the first place of the scan,
// from a valid one.
TEST(Recovery, WhatWasCutOffDoesNotComeBackWhenTheCutIsForgotten) {
  for (bool gap : {false, true}) {
    ReplicaNearRingsEnd r;
    auto first = r.append({{1, 1, 1}});
    JournalPos head = r.head;
    Written old = r.append({gap ? Part{0, 199, 2} : Part{2, 1, 2}});
    r.append({{3, 1, 3}});
    ASSERT_EQ(old.pos.v != head.v, gap) << "behind the ring's end";
    r.cut_back(first.mark, head);
    for (int start = 0; start < 3; ++start) {
      auto out = recovered(r);
      ASSERT_EQ(out.report.records, start + 1u);
      EXPECT_EQ(out.log.records.back().body.mark(), r.last) << "start " << start;
      r.sb = out.log.superblock;
      Written next = r.append({gap ? Part{5, 1, 9} : Part{0, 199, 9}});
      ASSERT_EQ(next.pos.v % r.sb.ring_bytes == 0, !gap && start == 0);
    }
  }
}

// In a journal of an older release, which did not erase cut records, the new record may already be there.
TEST(Recovery, WhatWasCutOffIsErasedInTheGapToo) {
  ReplicaNearRingsEnd r;
  auto first = r.append({{1, 1, 1}});
  JournalPos head = r.head;
  auto old = r.append({{2, 1, 2}});
  r.cut_back(first.mark, head);
  auto next = r.append({{0, 199, 9}});
  ASSERT_EQ(next.pos.v % r.sb.ring_bytes, 0u);
  ASSERT_LT(old.pos, next.pos);
  for (int start = 0; start < 3; ++start) {
    auto out = recovered(r);
    ASSERT_EQ(out.report.records, 2u) << "start " << start;
    EXPECT_EQ(out.log.records.back().body.mark(), next.mark);
  }
}

TEST(Recovery, AnUnreadableSectorInTheGapIsNoDamage) {
  ReplicaNearRingsEnd r;
  auto first = r.append({{1, 1, 1}});
  r.append({{0, 199, 9}});
  std::uint64_t bad = first.offset + first.blocks * block_size;
  bool readable = false;
  make_unreadable(r, bad, readable);
  auto out = recovered(r);
  EXPECT_EQ(out.report.records, 2u);
  EXPECT_FALSE(out.report.damage);
  EXPECT_TRUE(readable) << "because it is written";
}

TEST(Recovery, RecordsOfAnotherReplicaOrVolumeEndTheChain) {
  Replica r;
  r.append({{1, 1, 1}});
  r.sb.replica = 3;  // as if this were the disk of another replica
  r.append({{2, 1, 2}});
  r.sb.replica = 2;
  EXPECT_EQ(recovered(r).report.records, 1u);
}

// ---- the wrong files

// A record of a later release at the end of the log is intact, and must not be mistaken for a torn tail.
TEST(Recovery, ARecordThatNeedsUnknownFeaturesIsRefused) {
  Replica r;
  r.append({{1, 1, 1}});
  Written last = r.append({{2, 1, 2}});
  std::vector<std::byte> image(block_size);
  ASSERT_TRUE(r.journal.read(last.offset, image));
  std::byte* meta = image.data() + frame_header_bytes;
  std::size_t meta_bytes = body_header_bytes + 16 + 4;
  store_le(meta + 108, std::uint32_t{0x40});
  Hasher128 hash;  // as in encode_body_meta
  hash.update({meta, 112});
  hash.update({meta + body_header_bytes, meta_bytes - body_header_bytes});
  std::memcpy(meta + 112, hash.digest().bytes.data(), 16);
  ASSERT_TRUE(r.journal.write(last.offset, image));
  auto recovered = recover(r.journal, r.data);
  ASSERT_FALSE(recovered);
  EXPECT_NE(recovered.error().message.find("features 0x40"), std::string::npos) << recovered.error().message;
}

TEST(Recovery, AnotherVolumesDataArea) {
  Replica r, other;
  std::vector<std::byte> block(block_size);
  for (DataLabel label :
       {DataLabel{Uuid::parse("ffffffff-5f60-4711-8822-93a4b5c6d7e8").value(), 2, volume_blocks},
        DataLabel{volume, 1, volume_blocks}, DataLabel{volume, 2, volume_blocks - 1}}) {
    encode_data_label(label, block);
    std::copy(block.begin(), block.end(), r.data.bytes.end() - block_size);
    EXPECT_TRUE(refused(r, Errc::conflict, {"d.img", "belongs to volume", label.volume.text()}));
  }
  std::fill(r.data.bytes.end() - block_size, r.data.bytes.end(), std::byte{0});
  EXPECT_TRUE(refused(r, Errc::not_found, {"d.img", "not the volume's data area"}));
  r.data.bytes.back() = std::byte{1};
  encode_data_label({volume, 2, volume_blocks}, block);
  std::copy(block.begin(), block.end() - 1, r.data.bytes.end() - block_size);
  EXPECT_TRUE(refused(r, Errc::corrupt, {"d.img", "CRC"}));
}

TEST(Recovery, TruncatedFiles) {
  Replica r;
  r.data.bytes.resize(r.data.bytes.size() - block_size);
  EXPECT_TRUE(refused(r, Errc::conflict, {"d.img", "truncated"}));
  Replica j;
  j.journal.bytes.resize(j.journal.bytes.size() - block_size);
  EXPECT_TRUE(refused(j, Errc::corrupt, {"j.img", "truncated"}));
}

TEST(Recovery, WithoutALabelTheDataAreaMayBeExactlyFull) {
  Replica r(false);
  r.append({{0, 1, 1}});
  r.append({{199, 1, 2}});
  recovered(r);
  r.apply({{0, 1, 1}});
  EXPECT_TRUE(r.data_is_model());
}

// Writes blocks of 7s into the data area, with known digests.
void write_known(Replica& r, std::initializer_list<std::uint64_t> blocks) {
  std::vector<Digest> digests(volume_blocks, digest_zeros);
  std::vector<std::byte> content(block_size, std::byte{7});
  for (std::uint64_t lba : blocks) {
    digests[lba] = digest_of(volume, Lba{lba}, content);
    ASSERT_TRUE(r.data.write(lba * block_size, content));
  }
  std::vector<std::byte> page(block_size);
  encode_digest_page(volume, 0, digests, page);
  ASSERT_TRUE(r.journal.write(r.sb.digest_offset, page));
}

TEST(Recovery, WithoutALabelTheContentTellsWhoseDataAreaItIs) {
  Replica made(false);
  write_known(made, {0, 1, 2, 30, 60, 61, 90, 120, 150, 180, 199});
  made.append({{61, 1, 1}});
  auto foreign = [](Replica& r) { std::fill(r.data.bytes.begin(), r.data.bytes.end(), std::byte{0x5a}); };
  {
    Replica r = made;
    recovered(r);
  }
  {
    Replica r = made;
    foreign(r);
    EXPECT_TRUE(refused(r, Errc::conflict, {"d.img", "not the volume's data area", volume.text()}));
    std::fill(r.data.bytes.begin(), r.data.bytes.end(), std::byte{0});
    EXPECT_TRUE(refused(r, Errc::conflict, {"not the volume's data area"})) << "an empty disk";
  }
  {
    Replica r = made;
    foreign(r);
    std::fill_n(r.data.bytes.begin() + 150 * block_size, block_size, std::byte{7});
    recovered(r);  // one right block is enough; the others have rotted, and are repaired when they are read
  }
  {
    Replica r = made;
    foreign(r);
    r.append({{0, 140, 3}});
    r.append({{150, 50, -1}});
    // All known blocks are in the log. A crash may have prevented the write to the data area, or of the
    // digests.
    recovered(r);
  }
  {
    Replica r(false);
    write_known(r, {0, 1, 2});
    foreign(r);
    recovered(r);  // too few blocks to decide
  }
}

TEST(Recovery, AResyncThatWasUnderWaySaysNothingOfTheDataArea) {
  Replica r(false);
  write_known(r, {0, 1, 2, 30, 60, 61, 90, 120, 150, 180, 199});
  std::fill(r.data.bytes.begin(), r.data.bytes.end(), std::byte{0x5a});
  r.sb.disk = disk_state::Syncing{{1, volume}, std::nullopt};
  ASSERT_TRUE(store_superblock(r.journal, r.sb));
  recovered(r);
}

// ---- disks that fail

TEST(Recovery, ErrorsOfTheDisksNameFileAndPlace) {
  Replica made;
  auto w = made.append({{3, 1, 1}});
  made.append({{4, 1, 1}});
  {
    Replica r = made;
    r.journal.fails = [](std::uint64_t at, std::uint64_t, bool write) { return !write && at >= ring_offset; };
    EXPECT_TRUE(refused(r, Errc::corrupt, {"j.img", "cannot be read", std::to_string(ring_offset)}))
        << "like any other damage";
  }
  {
    Replica r = made;
    r.data.fails = [](std::uint64_t at, std::uint64_t, bool) { return at == volume_blocks * block_size; };
    EXPECT_TRUE(refused(r, Errc::io, {"d.img", std::to_string(volume_blocks * block_size)})) << "the label";
  }
  {
    Replica r = made;
    r.data.fails = [](std::uint64_t, std::uint64_t, bool write) { return write; };
    EXPECT_TRUE(refused(r, Errc::io, {"d.img", std::to_string(3 * block_size)})) << "the replay";
  }
  {
    Replica r = made;
    r.data.sync_fails = true;
    auto before = r.journal.bytes;
    auto out = recover(r.journal, r.data);
    ASSERT_FALSE(out);
    EXPECT_TRUE(fails_with(out.error(), Errc::io, {"d.img"}));
    EXPECT_EQ(r.journal.bytes, before) << "the superblock says nothing wrong";
  }
  (void)w;
}

TEST(Recovery, AnInterruptedReplayIsDoneAgain) {
  Replica made;
  for (int i = 0; i < 20; ++i) {
    made.append({{static_cast<std::uint64_t>(i * 5), 3, i + 1}});
    made.apply({{static_cast<std::uint64_t>(i * 5), 3, i + 1}});
  }
  made.append({{199, 1, 0x77}});
  for (int stop = 0; stop < 20; ++stop) {
    Replica r = made;
    int left = stop;
    r.data.fails = [&](std::uint64_t, std::uint64_t, bool write) { return write && left-- <= 0; };
    ASSERT_FALSE(recover(r.journal, r.data));
    r.data.fails = nullptr;
    recovered(r);
    EXPECT_TRUE(r.data_is_model()) << "stopped after " << stop;
  }
}

}  // namespace
}  // namespace twinloft::repl::journal
