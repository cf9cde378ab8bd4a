// The writer's side of the log against a model: whatever happens, and whenever the power is cut, the scan
// finds every entry that was acknowledged and not retired, and nothing that is needed is overwritten.
#include "twinloft/lmtpd/intake/log_core.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "../../support/log_disk.h"
#include "twinloft/base/random.h"
#include "twinloft/intake_log/entries.h"

namespace twinloft::lmtpd {
namespace {

using intake_log::block_bytes;
using intake_log::EntryName;
using intake_log::LogDisk;
using intake_log::LogShape;
using intake_log::Mark;

const Uuid core_log = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
constexpr LogShape core_shape{16 * block_bytes, 4};

// A disk, and a program that writes the log on it. cut() is a power cut.
struct Machine {
  explicit Machine(std::uint64_t seed, LogShape s = core_shape) : random(seed), shape(s), disk(s) { start(); }

  void start() {
    auto found = intake_log::scan(shape, core_log, disk);
    ASSERT_TRUE(found) << found.error().message;
    for (const auto& damage : found->damage) FAIL() << damage.why;
    auto checked = intake_log::check_mark(durable_mark, *found);
    ASSERT_TRUE(checked) << checked.error().message;
    ASSERT_NO_FATAL_FAILURE(check_entries(*found));
    // Replay has placed what was missing: all entries are settled, and the mark that says so is synced.
    durable_mark.settle_below(found->next_entry);
    core.emplace(LogCore::Config{shape, core_log, {}}, *found, durable_mark, one, two);
    set_marks.assign(1, durable_mark);
    acknowledged.clear();
    core->checkpointed(durable_mark.prefix());
  }

  // Each acknowledged entry that is not settled in the mark is in the log, and so is each withdrawal.
  void check_entries(const intake_log::Scan& found) {
    auto entries = intake_log::LogEntries::read(found, disk);
    ASSERT_TRUE(entries) << entries.error().message;
    std::map<std::uint64_t, const intake_log::LogEntry*> by_number;
    for (const auto& entry : entries->entries()) by_number[entry.number] = &entry;
    for (const auto& [number, content] : acknowledged) {
      if (durable_mark.is_settled(number)) continue;
      ASSERT_TRUE(by_number.contains(number)) << number;
      ASSERT_EQ(by_number[number]->content, content);
      ASSERT_TRUE(!withdrawn.contains(number) || by_number[number]->cancelled) << number;
      ASSERT_TRUE(asked.contains(number) || !by_number[number]->cancelled) << number;
    }
  }

  void append() {
    std::vector<EntryName> names(1 + random.below(3), {"user", "", "name"});
    const std::string content(random.below(random.below(4) == 0 ? 7 * block_bytes : 900), 'x');
    const bool has_room = !core->refusal(names, content.size());
    auto ticket = core->append(names, content);
    ASSERT_EQ(ticket.has_value(), has_room);
    if (!ticket) return;
    for (std::size_t i = 0; i < names.size(); ++i)
      waiting.emplace(ticket->first_entry + i, Waiting{*ticket, content});
  }
  // A delivery, or a withdrawal of it, goes on behind its group.
  void settle() {
    if (waiting.empty()) return;
    auto at = std::next(waiting.begin(), static_cast<std::ptrdiff_t>(random.below(waiting.size())));
    if (!core->is_durable(at->second.ticket)) return;
    acknowledged[at->first] = at->second.content;
    if (!at->second.cancelled && random.below(8) == 0) {
      auto ticket = core->cancel(at->first);
      ASSERT_TRUE(ticket) << ticket.error().message;
      at->second = {*ticket, at->second.content, true};
      asked.insert(at->first);
      return;
    }
    if (at->second.cancelled) withdrawn.insert(at->first);
    core->settle(at->first);
    waiting.erase(at);
    if (random.below(2) == 0) set_marks.push_back(core->mark());
  }
  void checkpoint() {
    if (random.below(2) == 0) set_marks.push_back(core->mark());
    durable_mark = set_marks.back();
    set_marks.assign(1, durable_mark);
    core->checkpointed(durable_mark.prefix());
  }
  void write() {
    if (!writing && core->wants_write())
      writing = core->begin_write();
    else if (writing) {
      disk.write(writing->at, writing->bytes);
      core->written();
      writing.reset();
    }
  }
  // Of the marks that were set since the last sync, a first part survives. A group that was being written is
  // there, or torn.
  void cut() {
    if (writing && random.below(3) != 0) disk.tear(writing->at, writing->bytes, random);
    durable_mark = set_marks[random.below(set_marks.size())];
    writing.reset();
    waiting.clear();
    start();
    withdrawn.clear();
    asked.clear();
  }
  void step(unsigned cuts) {
    switch (random.below(16)) {
      case 0:
        return checkpoint();
      case 1:
        return random.below(cuts) == 0 ? cut() : void();
      case 2:
      case 3:
      case 4:
      case 5:
        return append();
      case 6:
      case 7:
      case 8:
      case 9:
        return write();
      default:
        return settle();
    }
  }

  struct Waiting {
    LogTicket ticket;
    std::string content;
    bool cancelled = false;
  };
  SeededRandom random;
  const LogShape shape;
  LogDisk disk;
  std::vector<std::byte> one = std::vector<std::byte>(LogCore::group_bytes(shape)), two = one;
  Mark durable_mark{core_log};
  std::vector<Mark> set_marks;  // the first one is durable
  std::optional<LogCore> core;
  std::optional<LogCore::Write> writing;
  std::map<std::uint64_t, Waiting> waiting;
  std::map<std::uint64_t, std::string> acknowledged;  // or at least durable
  std::set<std::uint64_t> asked, withdrawn;           // to be cancelled; with a durable cancel record
};

TEST(LogCoreModel, APowerCutLosesNothing) {
  std::uint64_t groups = 0, entries = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Machine machine(seed);
    for (int i = 0; i < 2500; ++i)
      ASSERT_NO_FATAL_FAILURE(machine.step(10)) << "seed " << seed << ", step " << i;
    groups += machine.core->durable_groups();
    entries += machine.core->next_entry();
  }
  EXPECT_GT(groups, 60 * 200u) << "the ring is lapped";
  EXPECT_GT(entries, 60 * 300u);
}

TEST(LogCoreModel, ALogThatIsNeverCutIsLappedToo) {
  Machine machine(7);
  for (int i = 0; i < 60'000; ++i) ASSERT_NO_FATAL_FAILURE(machine.step(1'000'000'000)) << i;
  ASSERT_NO_FATAL_FAILURE(machine.cut());
}

struct LogCoreTest : testing::Test {
  LogDisk disk{core_shape};
  std::vector<std::byte> one = std::vector<std::byte>(LogCore::group_bytes(core_shape)), two = one;
  std::vector<EntryName> name{{"user", "", "name"}};
  LogCore core = made(Mark(core_log));

  LogCore made(Mark mark) {
    return LogCore({core_shape, core_log, {{}, 7, 8}}, intake_log::scan(core_shape, core_log, disk).value(),
                   std::move(mark), one, two);
  }
  void write() {
    auto group = core.begin_write();
    disk.write(group.at, group.bytes);
    core.written();
  }
  LogTicket durable(std::size_t content = 100) {
    auto ticket = core.append(name, std::string(content, 'x'));
    EXPECT_TRUE(ticket) << ticket.error().message;
    write();
    return ticket.value_or(LogTicket{});
  }
  intake_log::Scan scanned() const { return intake_log::scan(core_shape, core_log, disk).value(); }
};

TEST_F(LogCoreTest, AnIdleLogWritesNothing) {
  EXPECT_FALSE(core.wants_write());
  EXPECT_TRUE(core.is_empty());
  core.checkpointed(0);
  EXPECT_FALSE(core.wants_write());
  EXPECT_FALSE(core.checkpoint_wanted());
}

TEST_F(LogCoreTest, ATicketIsDurableWithItsGroupAndNotBefore) {
  auto first = core.append(name, "a");
  auto group = core.begin_write();
  auto second = core.append(name, "b");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->first_entry, 0u);
  EXPECT_EQ(second->first_entry, 1u);
  EXPECT_EQ(second->group, first->group + 1);
  EXPECT_FALSE(core.wants_write()) << "one group at a time";
  EXPECT_FALSE(core.is_durable(*first));
  disk.write(group.at, group.bytes);
  core.written();
  EXPECT_TRUE(core.is_durable(*first));
  EXPECT_FALSE(core.is_durable(*second));
  EXPECT_TRUE(core.wants_write());
  EXPECT_EQ(scanned().groups.at(0).mount, (intake_log::MountInstance{{}, 7, 8}));
}

// The prefix must be synced, and then a durable group must say so.
TEST_F(LogCoreTest, SpaceIsFreeOnceADurableGroupSaysSo) {
  durable();
  durable();
  const std::uint64_t used = core.used_bytes();
  core.settle(0);
  core.settle(1);
  EXPECT_FALSE(core.wants_write()) << "the mark is not synced";
  EXPECT_EQ(core.used_bytes(), used);
  core.checkpointed(2);
  EXPECT_EQ(core.used_bytes(), used);
  EXPECT_FALSE(core.is_empty());
  ASSERT_TRUE(core.wants_write());
  auto group = core.begin_write();
  EXPECT_EQ(core.used_bytes(), used + block_bytes);
  disk.write(group.at, group.bytes);
  core.written();
  EXPECT_EQ(core.used_bytes(), block_bytes) << "only the newest group";
  EXPECT_TRUE(core.is_empty());
  EXPECT_FALSE(core.wants_write());
  EXPECT_EQ(scanned().retired, 2u);
  EXPECT_EQ(scanned().groups.size(), 1u);
}

TEST_F(LogCoreTest, AGroupThatIsPartlyRetiredIsKept) {
  ASSERT_TRUE(core.append(name, "a"));
  ASSERT_TRUE(core.append(name, "b"));
  write();
  core.settle(0);
  core.checkpointed(1);
  EXPECT_FALSE(core.wants_write()) << "it would free nothing";
  durable();
  EXPECT_EQ(scanned().retired, 1u);
  EXPECT_EQ(scanned().groups.size(), 2u);
}

TEST_F(LogCoreTest, HalfOfTheLogIsForMessages) {
  const std::size_t content = 3 * block_bytes - 300;  // a group of three blocks
  std::uint64_t groups = 0;
  while (!core.refusal(name, content)) {
    EXPECT_EQ(core.checkpoint_wanted(), false);
    durable(content);
    ++groups;
  }
  EXPECT_EQ(core.refusal(name, content), LogRefusal::half_full);
  EXPECT_EQ(core.append(name, std::string(content, 'x')).error().code, Errc::exhausted);
  EXPECT_LE(core.used_bytes() * 2, core_shape.bytes());
  EXPECT_EQ(groups, 10u);
  core.settle(0);
  EXPECT_TRUE(core.checkpoint_wanted());
  // Withdrawals still go in, and leave room for the group that frees all of it.
  std::uint64_t cancelled = 0;
  while (core.cancel(cancelled % groups)) {
    write();
    ++cancelled;
  }
  EXPECT_GT(cancelled, 20u);
  core.settle_all_durable();
  core.checkpointed(groups);
  ASSERT_TRUE(core.wants_write());
  write();
  EXPECT_TRUE(core.is_empty());
  EXPECT_EQ(core.used_bytes(), block_bytes);
  EXPECT_FALSE(core.refusal(name, content));
}

TEST_F(LogCoreTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(core.refusal(name, one.size()), LogRefusal::too_large);
  const std::size_t half = one.size() / 2;
  ASSERT_TRUE(core.append(name, std::string(half, 'x')));
  EXPECT_EQ(core.refusal(name, half), LogRefusal::group_full);
  write();
  EXPECT_EQ(core.refusal(name, half), std::nullopt);
  EXPECT_EQ(core.cancel(0)->group, 1u);
  auto bad = core.append(std::vector<EntryName>{{"../x", "", "n"}}, "");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Errc::invalid);
}

// Withdrawals have room that messages do not take.
TEST_F(LogCoreTest, AFullGroupHasRoomForWithdrawals) {
  durable();
  std::size_t content = one.size();
  while (core.refusal(name, content)) --content;
  ASSERT_TRUE(core.append(name, std::string(content, 'x')));
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(core.cancel(0)) << i;
}

TEST_F(LogCoreTest, TheMarkLimitsTheEntriesAboveAnUnsettledOne) {
  const std::vector<EntryName> many(200, {"u", "", "n"});
  std::uint64_t entries = 0;
  while (!core.refusal(many, 0)) {
    ASSERT_TRUE(core.append(many, ""));
    write();
    entries += 200;
    core.checkpointed(core.mark().prefix());
    for (std::uint64_t e = entries - 200; e < entries; ++e)
      if (e > 5000) core.settle(e);
    if (entries == 5000)
      for (std::uint64_t e = 0; e < 5000; ++e) core.settle(e);
  }
  EXPECT_NE(core.refusal(many, 0), LogRefusal::failed);
  EXPECT_LE(entries, core.mark().room());
}

TEST_F(LogCoreTest, AFailureEndsEverything) {
  durable();
  core.settle(0);
  ASSERT_TRUE(core.append(name, "a"));
  core.begin_write();
  core.write_failed();
  EXPECT_EQ(core.refusal(name, 1), LogRefusal::failed);
  EXPECT_FALSE(core.append(name, "b"));
  EXPECT_FALSE(core.cancel(0));
  core.checkpointed(1);
  EXPECT_FALSE(core.wants_write());
  EXPECT_FALSE(core.checkpoint_wanted());
  EXPECT_EQ(core.durable_groups(), 1u);
}

// Another process of the same mount: what is not settled was never acknowledged.
TEST_F(LogCoreTest, ANextProcessContinues) {
  durable();
  durable();
  core.settle(1);
  LogCore next = made(core.mark());
  EXPECT_EQ(next.next_entry(), 2u);
  EXPECT_EQ(next.used_bytes(), core.used_bytes());
  next.settle_all_durable();
  EXPECT_EQ(next.mark().prefix(), 2u);
  next.checkpointed(2);
  ASSERT_TRUE(next.wants_write());
  auto group = next.begin_write();
  EXPECT_EQ(group.group, 2u);
  disk.write(group.at, group.bytes);
  next.written();
  EXPECT_TRUE(next.is_empty());
  EXPECT_EQ(scanned().groups.size(), 1u);
}

TEST_F(LogCoreTest, MistakesOfTheCallerStopTheProcess) {
  ASSERT_TRUE(core.append(name, "a"));
  EXPECT_DEATH(core.settle(0), "durable_entries");
  EXPECT_DEATH((void)core.cancel(0), "durable_entries");
  EXPECT_DEATH(core.checkpointed(1), "prefix");
  core.begin_write();
  EXPECT_DEATH(core.begin_write(), "wants_write");
}

TEST(LogCore, TheSizeOfAGroupFollowsTheLog) {
  EXPECT_EQ(LogCore::group_bytes({std::uint64_t{8} << 20, 8}), std::size_t{4} << 20);
  EXPECT_EQ(LogCore::group_bytes({std::uint64_t{1} << 20, 8}), std::size_t{1} << 20);
  EXPECT_EQ(LogCore::group_bytes({std::uint64_t{1} << 20, 2}), std::size_t{256} << 10);
  EXPECT_EQ(LogCore::group_bytes({block_bytes, 4}), 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
