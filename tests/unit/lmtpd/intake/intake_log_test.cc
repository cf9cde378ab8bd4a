#include "twinloft/lmtpd/intake/intake_log.h"

#include <gtest/gtest.h>

#include <thread>

#include "fake_log.h"

namespace twinloft::lmtpd {
namespace {

using test::FakeLogFiles;
using test::FileNames;
using LogOp = test::FaultyLogFiles::Op;

class IntakeLogTest : public ::testing::Test {
 protected:
  explicit IntakeLogTest(LogShape shape = {1u << 20, 4})
      : files_(shape),
        log_(files_, {shape, test::log_incarnation, {}}, {}, intake_log::Mark(test::log_incarnation)) {}

  // A message of one file for each name.
  std::optional<IntakeLog::Appended> append(const std::vector<std::string>& files, std::size_t bytes = 100) {
    std::vector<PlannedName> names;
    for (const std::string& file : files) names.push_back({"example.org/ann/Maildir", "", file});
    const std::string content(bytes, 'x');
    return log_.append({content, names});
  }
  // One that is durable.
  std::uint64_t put(const std::string& file, std::size_t bytes = 100) {
    auto appended = append({file}, bytes);
    EXPECT_TRUE(appended && appended->durable) << file;
    return appended ? appended->first : 0;
  }

  FakeLogFiles files_;
  IntakeLog log_;
};

TEST_F(IntakeLogTest, AMessageIsThereOnceItIsAppendedAndUntilItIsSettled) {
  EXPECT_EQ(put("one"), 0u);
  EXPECT_EQ(put("two"), 1u);
  EXPECT_EQ(files_.replayed(), (FileNames{"one", "two"}));
  ASSERT_TRUE(log_.settle(1).has_value());
  EXPECT_EQ(files_.replayed(), FileNames{"one"});
  ASSERT_TRUE(log_.settle(0).has_value());
  EXPECT_EQ(files_.replayed(), FileNames{});
  EXPECT_EQ(files_.count("sync"), 0u) << "no delivery waits for a sync";
}

TEST_F(IntakeLogTest, EachNameIsAnEntryOfItsOwn) {
  auto appended = append({"a", "b", "c"});
  ASSERT_TRUE(appended && appended->durable);
  EXPECT_EQ(appended->first, 0u);
  EXPECT_EQ(put("d"), 3u);
  ASSERT_TRUE(log_.settle(1).has_value());
  ASSERT_TRUE(log_.cancel(2).has_value());
  EXPECT_EQ(files_.replayed(), (FileNames{"a", "d"}));
}

// The name may have been in a commit, so its removal has to be in one too.
TEST_F(IntakeLogTest, ACancelIsAGroupAndASync) {
  put("one");
  files_.clear();
  ASSERT_TRUE(log_.cancel(0).has_value());
  EXPECT_EQ(files_.calls(), (std::vector<std::string>{"append", "mark", "sync"}));
  EXPECT_EQ(files_.replayed(), FileNames{});
}

TEST_F(IntakeLogTest, MessagesThatWaitShareAWrite) {
  files_.hold(LogOp::append);
  std::vector<std::thread> threads;
  threads.emplace_back([this] { put("first"); });
  files_.wait_for_held(1);
  for (const char* name : {"a", "b", "c", "d"}) threads.emplace_back([this, name] { put(name); });
  while (log_.messages() < 5) std::this_thread::yield();
  files_.release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(files_.count("append"), 2u);
  EXPECT_EQ(files_.replayed(), (FileNames{"first", "a", "b", "c", "d"}));
}

TEST_F(IntakeLogTest, NamesThatWaitShareAMark) {
  for (const char* name : {"a", "b", "c", "d"}) put(name);
  files_.hold(LogOp::mark);
  std::vector<std::thread> threads;
  threads.emplace_back([this] { EXPECT_TRUE(log_.settle(0).has_value()); });
  files_.wait_for_held(1);
  std::atomic<int> begun{0};
  for (std::uint64_t entry : {1u, 2u, 3u})
    threads.emplace_back([this, entry, &begun] {
      ++begun;
      EXPECT_TRUE(log_.settle(entry).has_value());
    });
  while (begun < 3) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  files_.release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(files_.count("mark"), 4u);
  EXPECT_EQ(files_.replayed(), FileNames{});
}

// A mark that began before the name was given proves nothing about it.
TEST_F(IntakeLogTest, AMarkThatHasBegunDoesNotCountForALaterName) {
  put("a"), put("b");
  files_.hold(LogOp::mark);
  std::thread first([this] { EXPECT_TRUE(log_.settle(0).has_value()); });
  files_.wait_for_held(1);
  std::thread second([this] { EXPECT_TRUE(log_.settle(1).has_value()); });
  files_.release();
  first.join(), second.join();
  EXPECT_EQ(files_.count("mark"), 2u);
}

TEST_F(IntakeLogTest, ACheckpointSyncsTheMarkBeforeAGroupRetiresEntries) {
  put("a"), put("b"), put("c");
  ASSERT_TRUE(log_.settle(0).has_value());
  ASSERT_TRUE(log_.settle(1).has_value());
  files_.clear();
  ASSERT_TRUE(log_.checkpoint().has_value());
  EXPECT_EQ(files_.calls(), (std::vector<std::string>{"mark", "sync", "append"}));
  EXPECT_EQ(files_.chain().back().header.retired, 2u);
  files_.clear();
  ASSERT_TRUE(log_.checkpoint().has_value());
  EXPECT_EQ(files_.count("append"), 0u) << "nothing new is retired";
  EXPECT_EQ(files_.replayed(), FileNames{"c"});
}

TEST_F(IntakeLogTest, AfterRetirementTheLogIsEmpty) {
  for (const char* name : {"a", "b"}) put(name), log_.end();
  EXPECT_TRUE(log_.settle(0).has_value() && log_.cancel(1).has_value());
  EXPECT_TRUE(log_.idle());
  log_.stop();
  EXPECT_FALSE(append({"late"}).has_value());
  ASSERT_TRUE(log_.retire().has_value());
  const auto chain = files_.chain();
  ASSERT_EQ(chain.size(), 1u);
  EXPECT_EQ(chain[0].header.retired, 2u);
  EXPECT_EQ(chain[0].header.end_entry(), 2u);
  files_.clear();
  ASSERT_TRUE(log_.retire().has_value());
  EXPECT_EQ(files_.calls(), std::vector<std::string>{}) << "an empty log needs no call";
}

TEST_F(IntakeLogTest, AnEntryThatIsNotSettledIsNotRetired) {
  put("a"), put("b");
  ASSERT_TRUE(log_.settle(1).has_value());
  log_.stop();
  EXPECT_FALSE(log_.retire().has_value());
  EXPECT_EQ(files_.replayed(), FileNames{"a"});
}

// ---- space

class SmallLogTest : public IntakeLogTest {
 protected:
  SmallLogTest() : IntakeLogTest({32u << 10, 4}) {}
};

TEST_F(SmallLogTest, HalfOfTheSpaceIsForMessages) {
  int fitted = 0;
  while (fitted < 100) {
    auto appended = append({"m" + std::to_string(fitted)}, 3000);
    if (!appended) break;
    ASSERT_TRUE(appended->durable.has_value());
    ++fitted;
  }
  EXPECT_EQ(fitted, 16);
  EXPECT_EQ(files_.replayed().size(), 16u);
  EXPECT_FALSE(log_.takes_messages());
  EXPECT_FALSE(log_.failure().has_value());
  EXPECT_TRUE(log_.cancel(3).has_value()) << "there is room for cancels";
  for (std::uint64_t entry = 0; entry < 16; ++entry) ASSERT_TRUE(log_.settle(entry).has_value());
  EXPECT_FALSE(append({"late"}, 3000).has_value()) << "what is settled may still be needed";
  EXPECT_TRUE(log_.wants_checkpoint());
  ASSERT_TRUE(log_.checkpoint().has_value());
  EXPECT_FALSE(log_.wants_checkpoint());
  EXPECT_TRUE(append({"late"}, 3000).has_value());
}

TEST_F(SmallLogTest, AMessageThatNeverFitsIsNotTaken) {
  EXPECT_FALSE(append({"large"}, 40'000).has_value());
  EXPECT_FALSE(append({std::string(300, 'n')}).has_value()) << "no file name is that long";
  EXPECT_EQ(put("small"), 0u);
}

// The ring is lapped many times. At each moment a replay finds exactly what is not settled.
TEST_F(SmallLogTest, TheSpaceIsUsedAgain) {
  std::string before;
  for (int n = 0; n < 400; ++n) {
    const std::string name = "m" + std::to_string(n);
    const std::uint64_t entry = put(name, static_cast<std::size_t>(n % 7) * 1500);
    ASSERT_EQ(entry, static_cast<std::uint64_t>(n));
    FileNames expected{name};
    if (!before.empty()) expected.insert(before);
    ASSERT_EQ(files_.replayed(), expected) << n;
    Status settled = n == 0 ? Status{} : n % 2 ? log_.settle(entry - 1) : log_.cancel(entry - 1);
    ASSERT_TRUE(settled.has_value());
    Status freed = log_.wants_checkpoint() ? log_.checkpoint() : Status{};
    ASSERT_TRUE(freed.has_value());
    before = name;
  }
  EXPECT_GT(files_.chain().back().header.number, 400u);
}

// Groups without records would overwrite what is needed while a delivery hangs.
TEST_F(SmallLogTest, AHangingDeliveryKeepsItsSpace) {
  put("hangs");
  for (int n = 0; n < 200; ++n) ASSERT_TRUE(log_.checkpoint().has_value());
  EXPECT_EQ(files_.replayed(), FileNames{"hangs"});
}

// ---- failures

TEST_F(IntakeLogTest, AfterAFailedWriteNothingIsAppended) {
  put("a");
  files_.fail(LogOp::append);
  auto failed = append({"b"});
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->durable.error().sys, EIO);
  EXPECT_EQ(failed->first, 1u);
  files_.fail(LogOp::append, false);
  EXPECT_FALSE(append({"c"}).has_value());
  EXPECT_FALSE(log_.takes_messages());
  EXPECT_NE(log_.failure().value().find("injected"), std::string::npos);
  EXPECT_EQ(files_.count("failure"), 1u);
  EXPECT_FALSE(log_.checkpoint().has_value());
  EXPECT_TRUE(log_.settle(0).has_value()) << "the mark still works";
}

// Those that wait for the next group were not written either.
TEST_F(IntakeLogTest, AFailedWriteEndsAllThatWait) {
  files_.hold(LogOp::append);
  files_.fail(LogOp::append);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  auto deliver = [&](const char* name) {
    auto appended = append({name});
    EXPECT_EQ(appended.has_value(), name == std::string("first")) << "the others' group was not written";
    if (!appended || !appended->durable) ++failed;
  };
  threads.emplace_back(deliver, "first");
  files_.wait_for_held(1);
  for (const char* name : {"a", "b", "c"}) threads.emplace_back(deliver, name);
  while (log_.messages() < 4) std::this_thread::yield();
  files_.release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(files_.count("append"), 1u);
  EXPECT_EQ(files_.replayed(), FileNames{"first"}) << "one block was written, which is all of it";
}

TEST_F(IntakeLogTest, AfterAFailedWriteACancelIsASyncedMark) {
  put("a"), put("b");
  files_.fail(LogOp::append);
  auto failed = append({"c"}, 9000);
  ASSERT_TRUE(failed && !failed->durable);
  files_.clear();
  EXPECT_TRUE(log_.cancel(0).has_value());
  EXPECT_EQ(files_.calls(), (std::vector<std::string>{"mark", "sync"}));
  EXPECT_EQ(files_.replayed(), FileNames{"b"});
  files_.fail(LogOp::sync);
  EXPECT_FALSE(log_.cancel(1).has_value()) << "a mark that is not synced is no cancel";
}

TEST_F(IntakeLogTest, AfterAFailedMarkACancelIsAGroup) {
  put("a"), put("b");
  files_.fail(LogOp::mark);
  EXPECT_EQ(log_.settle(0).error().sys, EIO);
  EXPECT_FALSE(append({"c"}).has_value());
  EXPECT_TRUE(log_.cancel(0).has_value());
  EXPECT_EQ(files_.replayed(), FileNames{"b"});
  EXPECT_FALSE(log_.settle(1).has_value());
  EXPECT_FALSE(log_.checkpoint().has_value());
  files_.fail(LogOp::append);
  EXPECT_FALSE(log_.cancel(1).has_value());
}

// A full disk ends the log for nobody but those who wait for this mark.
TEST_F(IntakeLogTest, AMarkWithoutSpaceIsTriedAgain) {
  for (int sys : {ENOSPC, EDQUOT}) {
    const std::uint64_t first = put("a"), second = put("b");
    files_.fail_with(sys);
    files_.fail(LogOp::mark);
    EXPECT_EQ(log_.settle(first).error().sys, sys);
    EXPECT_TRUE(log_.cancel(first).has_value());
    EXPECT_FALSE(log_.checkpoint().has_value());
    files_.fail(LogOp::mark, false);
    EXPECT_TRUE(log_.takes_messages());
    EXPECT_TRUE(log_.settle(second).has_value());
    EXPECT_TRUE(log_.checkpoint().has_value());
    EXPECT_EQ(files_.replayed(), FileNames{});
  }
  EXPECT_EQ(files_.count("failure"), 0u);
}

TEST_F(IntakeLogTest, AfterAFailedSyncNothingIsRetired) {
  put("a");
  ASSERT_TRUE(log_.settle(0).has_value());
  files_.fail(LogOp::sync);
  files_.clear();
  EXPECT_EQ(log_.checkpoint().error().sys, EIO);
  EXPECT_EQ(files_.calls(), (std::vector<std::string>{"mark", "sync", "failure"}));
  files_.fail(LogOp::sync, false);
  EXPECT_FALSE(log_.retire().has_value()) << "a later success proves nothing";
  EXPECT_EQ(files_.chain().back().header.retired, 0u);
  EXPECT_FALSE(log_.takes_messages());
}

}  // namespace
}  // namespace twinloft::lmtpd
