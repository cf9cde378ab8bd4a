// The ways to make a message durable: the synced files, the order of the syncs, and the effect of a failure.
#include "twinloft/lmtpd/spool/durability.h"

#include <cerrno>

#include "../support/fixture.h"
#include "../support/recording_ops.h"

namespace twinloft::lmtpd {
namespace {

using Calls = std::vector<std::string>;

// A spool with a message's file in `tmp`, and two directories for its names.
class DurabilityTest : public test::DirTest {
 protected:
  void SetUp() override {
    for (const char* name : {"/top", "/top/a", "/top/a/tmp", "/top/a/new", "/top/b", "/top/b/new"})
      std::filesystem::create_directory(dir_ + name);
    spool_ = Spool::create({dir_, std::nullopt}, ops_).value();
    handle_ = spool_->open().value();
    file_ = ops_.create_file(handle_.root.get(), "top/a/tmp/1.M2P3Q4.host").value();
    first_ = directory("top/a/new");
    second_ = directory("top/b/new");
    above_.push_back(directory("top/a"));
    above_.push_back(directory("top"));
    ops_.prefix = dir_;
    ops_.clear();
  }
  Fd directory(const std::string& path) { return ops_.open_directory(handle_.root.get(), path).value(); }
  std::unique_ptr<DurableMessage> begin(DurabilityWay way) {
    durability_ = make_durability(way, ops_, syncs_, [this](const SpoolHandle&) { return data_first_; });
    return durability_->begin(handle_, {});
  }

  bool data_first_ = true;  // is allowed
  test::RecordingOps ops_;
  SyncGroup syncs_{ops_};
  std::unique_ptr<Spool> spool_;
  SpoolHandle handle_;
  Fd file_, first_, second_;
  const std::vector<PlannedName> names_{{"top/a", "", "1"}, {"top/b", "", "2"}};
  const PlannedMessage planned_{{}, names_};
  std::vector<Fd> above_;
  std::unique_ptr<Durability> durability_;
};

TEST_F(DurabilityTest, FsyncWritesTheDataFirstAndSyncsEachDirectory) {
  auto message = begin(DurabilityWay::fsync);
  EXPECT_EQ(durability_->way(), DurabilityWay::fsync);
  EXPECT_EQ(message->way(), DurabilityWay::fsync);
  ASSERT_TRUE(message->content(file_.get(), planned_).has_value());
  EXPECT_EQ(ops_.calls(), (Calls{"write back /top/a/tmp/FILE"}));
  ops_.clear();
  ASSERT_TRUE(message->entry(0, {first_.get()}).has_value());
  ASSERT_TRUE(message->entry(1, {second_.get()}).has_value());
  EXPECT_EQ(ops_.calls(), (Calls{"fsync /top/a/new", "fsync /top/b/new"}));
}

TEST_F(DurabilityTest, TheFileIsSyncedByItselfWhereDataFirstIsNotAllowed) {
  for (DurabilityWay way : {DurabilityWay::fsync, DurabilityWay::fsync_file}) {
    data_first_ = way == DurabilityWay::fsync_file;  // which this way does not ask
    ops_.clear();
    auto message = begin(way);
    EXPECT_EQ(durability_->way(), way);
    EXPECT_EQ(message->way(), DurabilityWay::fsync_file);
    ASSERT_TRUE(message->content(file_.get(), planned_).has_value());
    ASSERT_TRUE(message->entry(0, {first_.get()}).has_value());
    EXPECT_EQ(ops_.calls(), (Calls{"fsync /top/a/tmp/FILE", "fsync /top/a/new"}));
  }
}

TEST_F(DurabilityTest, FsyncSyncsWhatWasMadeAboveUpToTheRoot) {
  auto message = begin(DurabilityWay::fsync);
  ASSERT_TRUE(message->entry(0, {first_.get(), above_}).has_value());
  EXPECT_EQ(ops_.calls(), (Calls{"fsync /top/a/new", "fsync /top/a", "fsync /top", "fsync "}));
}

// Each failed step is an error of its entry, and the next entry is still tried.
TEST_F(DurabilityTest, FsyncReportsEachFailureToItsEntry) {
  for (int step = 0; step < 4; ++step) {
    auto message = begin(DurabilityWay::fsync);
    ops_.clear();
    ops_.fail_at = step;
    Status first = message->entry(0, {first_.get(), above_});
    ASSERT_FALSE(first.has_value()) << step;
    EXPECT_EQ(first.error().sys, EIO);
    EXPECT_EQ(ops_.calls().size(), static_cast<std::size_t>(step) + 1);
    EXPECT_TRUE(message->entry(1, {second_.get()}).has_value());
  }
  ops_.clear();
  ops_.fail_at = 0;
  EXPECT_FALSE(begin(DurabilityWay::fsync)->content(file_.get(), planned_).has_value());
}

TEST_F(DurabilityTest, GroupSyncNeedsOneSyncfsForTheContentAndOneForAllEntries) {
  auto message = begin(DurabilityWay::group_sync);
  EXPECT_EQ(durability_->way(), DurabilityWay::group_sync);
  ASSERT_TRUE(message->content(file_.get(), planned_).has_value());
  EXPECT_EQ(ops_.calls(), (Calls{"syncfs", "look"}));
  ASSERT_TRUE(message->entry(0, {first_.get(), above_}).has_value());
  ASSERT_TRUE(message->entry(1, {second_.get()}).has_value());
  EXPECT_EQ(ops_.calls(), (Calls{"syncfs", "look", "syncfs", "look"}));
  EXPECT_EQ(syncs_.counters().rounds, 2u);
}

// After a failed syncfs, each message may have lost bytes.
TEST_F(DurabilityTest, AFailedGroupSyncIsTheFailureOfEveryEntry) {
  for (int step : {0, 1}) {  // syncfs, then the check of the file system
    auto message = begin(DurabilityWay::group_sync);
    ops_.clear();
    ops_.fail_at = step;
    for (const Fd* directory : {&first_, &second_}) {
      Status synced = message->entry(0, {directory->get()});
      ASSERT_FALSE(synced.has_value()) << step;
      EXPECT_EQ(synced.error().sys, EIO);
    }
    ops_.clear();
    EXPECT_FALSE(begin(DurabilityWay::group_sync)->content(file_.get(), planned_).has_value()) << step;
    ops_.fail_at = -1;
  }
}

// A message's syncfs does not cover the names of the next message.
TEST_F(DurabilityTest, EachMessageHasASyncfsOfItsOwn) {
  auto first = begin(DurabilityWay::group_sync);
  ASSERT_TRUE(first->entry(0, {first_.get()}).has_value());
  auto second = durability_->begin(handle_, {});
  ASSERT_TRUE(second->entry(0, {first_.get()}).has_value());
  EXPECT_EQ(std::ranges::count(ops_.calls(), "syncfs"), 2);
}

// Without data first, the file is synced by itself, and a file without a name is not measured.
TEST_F(DurabilityTest, OnlyWithDataFirstMayTheFileBeWithoutAName) {
  EXPECT_TRUE(begin(DurabilityWay::fsync)->may_be_unnamed());
  EXPECT_FALSE(begin(DurabilityWay::fsync_file)->may_be_unnamed());
  EXPECT_FALSE(begin(DurabilityWay::group_sync)->may_be_unnamed());
  data_first_ = false;
  EXPECT_FALSE(begin(DurabilityWay::fsync)->may_be_unnamed());
}

// These ways keep nothing beside the file, so a removed name needs no system call.
TEST_F(DurabilityTest, AWithdrawnNameNeedsNoCall) {
  for (DurabilityWay way : {DurabilityWay::fsync, DurabilityWay::fsync_file, DurabilityWay::group_sync}) {
    auto message = begin(way);
    EXPECT_FALSE(message->keeps_content());
    ASSERT_TRUE(message->content(file_.get(), planned_).has_value());
    ops_.clear();
    EXPECT_TRUE(message->withdraw(0).has_value());
    EXPECT_EQ(ops_.calls(), Calls{});
  }
}

TEST(DurabilityNames, AreParsed) {
  for (DurabilityWay way : {DurabilityWay::fsync, DurabilityWay::fsync_file, DurabilityWay::group_sync,
                            DurabilityWay::intake_log})
    EXPECT_EQ(parse_durability(to_string(way)).value(), way);
  EXPECT_EQ(parse_durability("group-sync").value(), DurabilityWay::group_sync);
  EXPECT_FALSE(parse_durability("none").has_value());
}

}  // namespace
}  // namespace twinloft::lmtpd
