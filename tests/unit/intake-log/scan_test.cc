// The scan of a log: what it finds of a whole log, and of one that is torn, damaged, or mixed with another.
#include "twinloft/intake_log/scan.h"

#include <gtest/gtest.h>

#include <deque>

#include "../support/log_disk.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/base/random.h"
#include "twinloft/intake_log/entries.h"

namespace twinloft::intake_log {
namespace {

const Uuid scanned_log = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
const Uuid foreign_log = Uuid::parse("11111111-2222-4333-8444-555555555555").value();
constexpr LogShape small_shape{16 * block_bytes, 3};

// A writer that is simpler than that of lmtpd.
struct TestLog {
  explicit TestLog(Uuid of = scanned_log, LogShape s = small_shape) : incarnation(of), shape(s), disk(s) {}

  std::uint64_t distance(Position from, Position to) const {
    auto linear = [&](Position p) { return p.segment * shape.segment_bytes + p.offset; };
    return (linear(to) + shape.bytes() - linear(from)) % shape.bytes();
  }
  // Builds the next group. Its place is free: older groups are retired first.
  ByteSpan build(std::size_t content, std::uint64_t cancel = ~std::uint64_t{0}) {
    // Only what the newest durable group does not need may be overwritten.
    while (live.size() > 1 &&
           distance(live.front().at, end) + 2 * whole_blocks(content + 500) + 8 * block_bytes >=
               shape.bytes())
      retire(1);
    builder.clear();
    if (content > 0) {
      EXPECT_TRUE(builder.add_message(names, std::string(content, static_cast<char>('a' + next % 26))));
    }
    if (cancel < next_entry) {
      EXPECT_TRUE(builder.add_cancel(cancel));
    }
    const std::size_t bytes = whole_blocks(builder.used());
    const Position at = place_for(shape, end, bytes);
    GroupHeader header;
    header.incarnation = incarnation;
    header.number = next;
    header.first_entry = next_entry;
    header.retired = retired;
    header.at = at;
    auto needed = std::ranges::find_if(live, [&](const GroupHeader& g) { return g.end_entry() > retired; });
    header.oldest_number = needed == live.end() ? next : needed->number;
    header.oldest = needed == live.end() ? at : needed->at;
    ByteSpan out = builder.finish(header);
    building = decode_group(out).value().header;
    return out;
  }
  void commit(ByteSpan bytes) {
    disk.write(building.at, bytes);
    live.push_back(building);
    while (live.front().number < building.oldest_number) live.pop_front();
    ++next;
    next_entry = building.end_entry();
    end = end_of(shape, building.at, building.bytes);
  }
  void add(std::size_t content) { commit(build(content)); }
  // An empty group says that the oldest groups are retired.
  void retire(std::size_t groups) {
    retired = std::max(retired, live[groups - 1].end_entry());
    GroupBuilder other(spare);
    GroupHeader header;
    header.incarnation = incarnation;
    header.number = next;
    header.first_entry = next_entry;
    header.retired = retired;
    header.at = place_for(shape, end, block_bytes);
    auto needed = std::ranges::find_if(live, [&](const GroupHeader& g) { return g.end_entry() > retired; });
    header.oldest_number = needed == live.end() ? next : needed->number;
    header.oldest = needed == live.end() ? header.at : needed->at;
    ByteSpan out = other.finish(header);
    building = decode_group(out).value().header;
    commit(out);
  }
  Result<Scan> scanned() const { return scan(shape, incarnation, disk); }
  void expect_whole(std::string_view when) const {
    auto found = scanned();
    ASSERT_TRUE(found) << when << ": " << found.error().message;
    ASSERT_TRUE(found->damage.empty()) << when << ": " << found->damage[0].why;
    ASSERT_EQ(found->groups, std::vector<GroupHeader>(live.begin(), live.end())) << when;
    ASSERT_EQ(found->next_group, next) << when;
    ASSERT_EQ(found->next_entry, next_entry) << when;
    ASSERT_EQ(found->retired, live.empty() ? 0 : live.back().retired) << when;
    ASSERT_EQ(found->end, end) << when;
  }
  void flip(const GroupHeader& group, std::size_t byte) {
    disk.segments[group.at.segment][group.at.offset + byte] ^= std::byte{4};
  }

  Uuid incarnation;
  LogShape shape;
  LogDisk disk;
  std::vector<std::byte> memory = std::vector<std::byte>(8 * block_bytes),
                         spare = std::vector<std::byte>(block_bytes);
  GroupBuilder builder{memory};
  const std::vector<EntryName> names{{"a", "", "one"}, {"b", ".x", "two"}};
  std::uint64_t next = 0, next_entry = 0, retired = 0;
  Position end;
  std::deque<GroupHeader> live;
  GroupHeader building;
};

std::size_t any_size(SeededRandom& random) {
  return random.below(5) == 0 ? 0 : 1 + random.below(6 * block_bytes);
}

TEST(Scan, AnEmptyLogIsNew) {
  TestLog log;
  log.expect_whole("no group");
  EXPECT_TRUE(log.scanned()->groups.empty());
  EXPECT_FALSE(log.scanned()->torn);
}

TEST(Scan, FindsTheNeededGroupsOfEveryLog) {
  SeededRandom random(1);
  for (int round = 0; round < 30; ++round) {
    TestLog log;
    for (int step = 0; step < 80; ++step) {
      log.add(any_size(random));
      if (random.below(4) == 0 && log.live.size() > 1) log.retire(1 + random.below(log.live.size() - 1));
      ASSERT_NO_FATAL_FAILURE(log.expect_whole("whole"));
    }
  }
}

// Also when the next program writes over what was torn, or behind it.
TEST(Scan, ATornNewestGroupIsIgnored) {
  SeededRandom random(2);
  int torn = 0;
  for (int round = 0; round < 60; ++round) {
    TestLog log;
    for (int step = 0; step < 40; ++step) {
      ByteSpan group = log.build(any_size(random));
      const GroupHeader header = log.building;
      if (random.below(3) == 0) {
        log.disk.tear(header.at, group, random);
        auto found = log.scanned();
        ASSERT_TRUE(found) << found.error().message;
        if (found->next_group == header.number + 1) {  // all that counts was written
          log.commit(group);
          continue;
        }
        torn += found->torn.has_value();
        ASSERT_NO_FATAL_FAILURE(log.expect_whole("torn"));
      } else {
        log.commit(group);
      }
      ASSERT_NO_FATAL_FAILURE(log.expect_whole("written"));
    }
  }
  EXPECT_GT(torn, 100);
}

TEST(Scan, ADamagedGroupInTheMiddleIsReported) {
  SeededRandom random(3);
  for (int round = 0; round < 300; ++round) {
    TestLog log;
    for (int i = 0; i < 12; ++i) log.add(1 + random.below(2 * block_bytes));
    const std::size_t victim = random.below(log.live.size() - 1);
    const GroupHeader group = log.live[victim];
    log.flip(group, random.below(2) == 0 ? random.below(group_header_bytes) : random.below(group.bytes));
    auto found = log.scanned();
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->damage.size(), 1u);
    const Damage& damage = found->damage[0];
    EXPECT_EQ(damage.first_group, group.number);
    EXPECT_EQ(damage.end_group, group.number + 1);
    EXPECT_EQ(damage.first_entry, group.first_entry);
    EXPECT_EQ(damage.end_entry, group.end_entry());
    EXPECT_EQ(found->groups.size() + 1, log.live.size());
    EXPECT_EQ(found->next_group, log.next);
    EXPECT_EQ(found->end, log.end);
  }
}

TEST(Scan, DamageIsSaidInWords) {
  TestLog log;
  for (int i = 0; i < 6; ++i) log.add(100);
  log.flip(log.live[2], 300);
  log.flip(log.live[3], 20);
  auto found = log.scanned();
  ASSERT_TRUE(found);
  ASSERT_EQ(found->damage.size(), 1u);
  EXPECT_EQ(found->damage[0].why,
            "groups 2 to 3, behind segment-00 at 8192, cannot be read, although later groups exist");
}

// A torn group proves that the one before was durable.
TEST(Scan, ADamagedGroupBeforeATornOneIsReported) {
  for (std::size_t byte : {std::size_t{20}, std::size_t{300}}) {
    TestLog log;
    for (int i = 0; i < 6; ++i) log.add(300);
    log.flip(log.live[4], byte);
    log.flip(log.live[5], 300);
    auto found = log.scanned();
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->torn);
    ASSERT_EQ(found->damage.size(), 1u) << byte;
    EXPECT_EQ(found->damage[0].first_group, 4u);
    EXPECT_EQ(found->damage[0].end_group, 5u);
    EXPECT_EQ(found->damage[0].end_entry, 10u);
    EXPECT_EQ(found->next_group, 5u);
    EXPECT_EQ(found->next_entry, 10u);
  }
}

TEST(Scan, TheLogOfAnotherIncarnationIsRefused) {
  TestLog log(foreign_log);
  log.add(100);
  auto found = scan(log.shape, scanned_log, log.disk);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Errc::conflict);
  EXPECT_EQ(
      found.error().message,
      "segment-00 at 0 has a group of the log 11111111-2222-4333-8444-555555555555, and this is the log "
      "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff");
}

// A segment of another log, of zeros, of an older time, or with changed bits: whatever is missing is named,
// or contradicts the mark.
TEST(Scan, NothingIsLostInSilence) {
  SeededRandom random(4);
  for (int round = 0; round < 600; ++round) {
    TestLog log, foreign(foreign_log);
    LogDisk older = log.disk;
    const auto old_time = random.below(30);
    for (std::uint64_t i = 0; i < 30; ++i) {
      if (i == old_time) older = log.disk;
      log.add(1 + random.below(2 * block_bytes));
      foreign.add(1 + random.below(2 * block_bytes));
    }
    const std::size_t segment = random.below(3);
    auto& bytes = log.disk.segments[segment];
    switch (random.below(4)) {
      case 0:
        bytes = foreign.disk.segments[segment];
        break;
      case 1:
        bytes.assign(bytes.size(), std::byte{0});
        break;
      case 2:
        bytes = older.segments[segment];
        break;
      case 3:
        for (int i = 0; i < 3; ++i) bytes[random.below(bytes.size())] ^= std::byte{1};
        break;
    }
    auto found = log.scanned();
    if (!found || !check_mark(Mark(scanned_log, log.next_entry), *found)) continue;
    std::size_t at = 0;
    for (const GroupHeader& group : log.live) {
      const bool is_found = at < found->groups.size() && found->groups[at] == group;
      at += is_found;
      const bool is_damage = std::ranges::any_of(found->damage, [&](const Damage& d) {
        return d.first_group <= group.number && group.number < d.end_group;
      });
      // The newest group looks torn if it is damaged: only the mark knows better, unless it has no entry.
      ASSERT_TRUE(is_found || is_damage || (group.number + 1 == log.next && group.entries == 0)) << round;
    }
    ASSERT_EQ(at, found->groups.size()) << "a group that nobody wrote there";
  }
}

TEST(Scan, ATruncatedSegmentIsAnError) {
  TestLog log;
  log.add(100);
  log.disk.segments[1].resize(8192);
  auto found = log.scanned();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "segment-01 ends at 8192");
}

void set_version(TestLog& log, const GroupHeader& group, std::uint16_t version) {
  std::byte* at = log.disk.segments[group.at.segment].data() + group.at.offset;
  store_le(at + 4, version);
  store_le(at + 8, std::uint32_t{0});
  store_le(at + 8, crc32c({at, group_header_bytes}));
}

TEST(Scan, ANewerVersionIsRefusedIfItIsTheNewestGroup) {
  TestLog log;
  for (int i = 0; i < 3; ++i) log.add(100);
  set_version(log, log.live[2], 2);
  auto found = log.scanned();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Errc::invalid);
  EXPECT_EQ(found.error().message, "group 2 of the log has version 2, and this program reads version 1");
  log.retire(3);
  EXPECT_TRUE(log.scanned()) << "an older program has retired it, and wrote behind it";
}

TEST(Scan, AShapeThatNoLogHasIsRefused) {
  TestLog log;
  for (LogShape shape : {LogShape{}, LogShape{4096, 0}, LogShape{0, 1}, LogShape{4097, 1},
                         LogShape{4096, 101}, LogShape{segment_bytes_max * 2, 1}}) {
    auto found = scan(shape, scanned_log, log.disk);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Errc::invalid);
  }
}

// Every block claims to begin a group of 4 MiB.
TEST(Scan, ItsWorkIsBoundedByTheSizeOfTheLog) {
  const LogShape shape{std::uint64_t{8} << 20, 2};
  TestLog log(scanned_log, shape);
  std::vector<std::byte> memory(group_bytes_max);
  GroupBuilder builder(memory);
  ASSERT_TRUE(builder.add_message(log.names, std::string(group_bytes_max - 500, 'x')));
  std::uint64_t number = 0;
  for (std::uint32_t segment = 0; segment < 2; ++segment)
    for (std::uint64_t offset = 0; offset + group_bytes_max <= shape.segment_bytes; offset += block_bytes) {
      GroupHeader header;
      header.incarnation = scanned_log;
      header.number = ++number;
      header.first_entry = 2 * number;
      header.at = {segment, offset};
      header.oldest_number = 1;
      if (number == 1) header.oldest = header.at;
      std::copy_n(builder.finish(header).begin(), block_bytes,
                  log.disk.segments[segment].begin() + static_cast<std::ptrdiff_t>(offset));
    }
  auto found = log.scanned();
  EXPECT_LE(log.disk.bytes_read, 4 * shape.bytes());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "the log has more damaged groups than a program can have written");
}

TEST(Scan, TheMarkMustBelongToTheLog) {
  TestLog log;
  for (int i = 0; i < 5; ++i) log.add(100);  // entries 0 to 9
  log.retire(2);
  auto found = log.scanned();
  ASSERT_TRUE(found);
  EXPECT_TRUE(check_mark(Mark(scanned_log, 4), *found));
  EXPECT_TRUE(check_mark(Mark(scanned_log, 10), *found));
  auto older = check_mark(Mark(scanned_log, 3), *found);
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().message,
            "the mark ends at entry 3, and the log has retired all entries before 4: the mark is older than "
            "the log");
  Mark later(scanned_log, 4);
  later.settle(10);
  auto beyond = check_mark(later, *found);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Errc::conflict);
  EXPECT_EQ(beyond.error().message,
            "the mark says that entry 10 is settled, and the log ends before entry 10: a part of the log is "
            "missing, "
            "or the mark is of a later log");
  EXPECT_FALSE(check_mark(Mark(scanned_log, 11), *found));
  EXPECT_FALSE(check_mark(Mark(scanned_log, 1), TestLog().scanned().value())) << "a log that lost all groups";
}

TEST(LogEntries, HaveTheirContentAndTheirWithdrawals) {
  TestLog log;
  for (int i = 0; i < 4; ++i) log.add(100 + static_cast<std::size_t>(i));  // entries 0 to 7
  log.commit(log.build(0, 5));
  log.retire(1);
  auto found = log.scanned();
  ASSERT_TRUE(found);
  auto entries = LogEntries::read(*found, log.disk);
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->entries().size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    const LogEntry& entry = entries->entries()[i];
    EXPECT_EQ(entry.number, i + 2);
    EXPECT_EQ(entry.name, log.names[i % 2]);
    EXPECT_EQ(entry.content, std::string(101 + i / 2, static_cast<char>('b' + i / 2)));
    EXPECT_EQ(entry.cancelled, i + 2 == 5);
    EXPECT_EQ(found->groups[entry.group].first_entry, entry.number / 2 * 2);
  }
  EXPECT_FALSE(needs_replay(*found, MountInstance{}));
  EXPECT_TRUE(needs_replay(*found, MountInstance{{}, 1, 0}));
  log.retire(log.live.size());
  EXPECT_FALSE(needs_replay(log.scanned().value(), MountInstance{{}, 1, 0})) << "everything is retired";
}

}  // namespace
}  // namespace twinloft::intake_log
