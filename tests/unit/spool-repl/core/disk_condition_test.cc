// The state of a replica's content, and what the superblock says meanwhile.
#include "twinloft/spool-repl/core/disk_condition.h"

#include <gtest/gtest.h>

namespace twinloft::repl::core {
namespace {

using namespace disk_state;

const Epoch one{1, Uuid::parse("11111111-2222-4333-8444-555555555555").value()};
const Epoch two{2, Uuid::parse("22222222-2222-4333-8444-555555555555").value()};
const LogPoint base{one, Lsn{10}};
const DiskState consistent = Consistent{}, refilling = Refilling{Lsn{20}, two},
                damaged = Damaged{Lsn{20}, one, std::nullopt, base}, syncing = Syncing{two, base};

TEST(DiskConditionTest, AsTheStartFindsIt) {
  for (const DiskState& found : {consistent, refilling, damaged, syncing}) {
    DiskCondition d(found);
    EXPECT_EQ(d.stored(), found);
    EXPECT_EQ(d.inconsistent(), is_inconsistent(found));
    EXPECT_EQ(d.refilling() != nullptr, found == refilling);
    EXPECT_EQ(d.damaged() != nullptr, found == damaged);
    EXPECT_EQ(d.syncing() != nullptr, found == syncing);
    EXPECT_EQ(d.base(), is_inconsistent(found) ? std::optional(base) : std::nullopt);
    EXPECT_FALSE(d.accepting_loss() || d.finishing());
    d.check_invariants();
  }
}

// The superblock says Consistent before any replica may rely on it.
TEST(DiskConditionTest, AResyncIsFinishedOnceTheSuperblockIsDurable) {
  for (const DiskState& found : {damaged, syncing}) {
    DiskCondition d(found);
    d.finish();
    EXPECT_EQ(d.stored(), consistent);
    EXPECT_TRUE(d.inconsistent() && d.finishing());
    EXPECT_FALSE(d.damaged() || d.syncing() || d.base());
    d.finished();
    EXPECT_EQ(d.stored(), consistent);
    EXPECT_FALSE(d.inconsistent());
  }
}

TEST(DiskConditionTest, AResyncThatBeginsMeanwhileIsNotFinished) {
  DiskCondition d(syncing);
  d.finish();
  d.begin_sync(one, std::nullopt);
  d.finished();
  EXPECT_TRUE(d.inconsistent());
  EXPECT_EQ(d.stored(), DiskState(Syncing{one, std::nullopt}));
}

TEST(DiskConditionTest, AnotherSourceKeepsTheBaseOrForgetsIt) {
  DiskCondition d(syncing);
  d.change_source(one, true);
  EXPECT_EQ(d.stored(), DiskState(Syncing{one, base}));
  EXPECT_TRUE(d.source_pending());
  d.source_durable();
  EXPECT_FALSE(d.source_pending());
  d.change_source(two, false);
  EXPECT_EQ(d.stored(), DiskState(Syncing{two, std::nullopt}));
}

TEST(DiskConditionTest, WhatIsMissingGrowsOnly) {
  DiskCondition d(consistent);
  d.note_refill(Lsn{20}, two, one);
  EXPECT_EQ(d.stored(), refilling);
  EXPECT_FALSE(d.inconsistent());
  d.note_refill(Lsn{15}, one, one);
  EXPECT_EQ(d.stored(), DiskState(Refilling{Lsn{20}, one})) << "the last primary that reported it";
  d.refilled();
  EXPECT_EQ(d.stored(), consistent);

  DiskCondition other(damaged);
  other.note_refill(Lsn{15}, two, two);
  EXPECT_EQ(other.stored(), damaged);
  other.note_refill(Lsn{25}, two, two);
  EXPECT_EQ(other.stored(), DiskState(Damaged{Lsn{25}, two, std::nullopt, base}));

  DiskCondition target(syncing);
  target.note_refill(Lsn{25}, two, two);
  EXPECT_EQ(target.stored(), syncing) << "the resync supplies it";
}

// If the replica crashes before the promotion is known to all, the next start detects the loss again.
TEST(DiskConditionTest, AnAcceptedLossIsStoredUntilItIsSettled) {
  for (const DiskState& found : {refilling, damaged}) {
    DiskCondition d(found);
    d.accept_loss();
    EXPECT_EQ(d.stored(), found);
    EXPECT_TRUE(d.accepting_loss());
    EXPECT_FALSE(d.inconsistent() || d.refilling() || d.damaged());
    d.note_refill(Lsn{30}, two, two);
    EXPECT_NE(d.stored(), found);
    EXPECT_EQ(is_inconsistent(d.stored()), is_inconsistent(found));
    d.loss_settled();
    EXPECT_EQ(d.stored(), consistent);
  }
}

TEST(DiskConditionDeathTest, NoTransitionThatIsNone) {
  EXPECT_DEATH(DiskCondition(consistent).finish(), "");
  EXPECT_DEATH(DiskCondition(refilling).finish(), "");
  EXPECT_DEATH(DiskCondition(consistent).accept_loss(), "");
  EXPECT_DEATH(DiskCondition(syncing).accept_loss(), "");
  EXPECT_DEATH(DiskCondition(damaged).loss_settled(), "");
  EXPECT_DEATH(DiskCondition(damaged).change_source(one, true), "");
  EXPECT_DEATH(DiskCondition(damaged).refilled(), "");
}

}  // namespace
}  // namespace twinloft::repl::core
