// The bytes of a group: golden bytes, every limit, and input that is damaged.
#include "twinloft/intake_log/group.h"

#include <gtest/gtest.h>

#include "golden.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/base/random.h"

namespace twinloft::intake_log {
namespace {

using Bytes = std::vector<std::byte>;

const Uuid this_log = Uuid::parse("0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff").value();
const Uuid other_log = Uuid::parse("11111111-2222-4333-8444-555555555555").value();

GroupHeader header_of(std::uint64_t number, Position at) {
  GroupHeader h;
  h.incarnation = this_log;
  h.number = number;
  h.first_entry = 40;
  h.mount = {Uuid::parse("a0a1a2a3-a4a5-46a7-88a9-aaabacadaeaf").value(), 17, 4711};
  h.retired = 37;
  h.oldest_number = number - 2;
  h.oldest = {1, 8192};
  h.at = at;
  return h;
}

struct GroupTest : testing::Test {
  Bytes memory = Bytes(4 * block_bytes, std::byte{0xee});
  GroupBuilder builder{memory};
  const std::vector<EntryName> two{{"example.org/anna", "", "1.M1P2.host,S=6"},
                                   {"example.org/ben", ".Lists.dev", "1.M1P2.host,S=6"}};

  Bytes whole() {
    EXPECT_TRUE(builder.add_message(two, "a\nbcd\n"));
    EXPECT_TRUE(builder.add_cancel(38));
    EXPECT_TRUE(builder.add_message(std::span(two).first(1), ""));
    ByteSpan bytes = builder.finish(header_of(9, {2, 4096}));
    return {bytes.begin(), bytes.end()};
  }
};

// Sets both checksums, as somebody who wants to mislead the decoder would.
void seal(Bytes& bytes) {
  store_le(bytes.data() + 12, crc32c(ByteSpan(bytes).subspan(group_header_bytes)));
  store_le(bytes.data() + 8, std::uint32_t{0});
  store_le(bytes.data() + 8, crc32c(ByteSpan(bytes).first(group_header_bytes)));
}

TEST_F(GroupTest, GoldenBytes) {
  expect_golden("intake-group", whole());
  builder.clear();
  ByteSpan empty = builder.finish(header_of(10, {0, 0}));
  expect_golden("intake-group-empty", empty);
}

TEST_F(GroupTest, AGroupIsReadAsItWasWritten) {
  Bytes bytes = whole();
  auto group = decode_group(bytes);
  ASSERT_TRUE(group) << group.error().message;
  GroupHeader expected = header_of(9, {2, 4096});
  expected.entries = 3;
  expected.records = 3;
  expected.bytes = block_bytes;
  expected.used = static_cast<std::uint32_t>(builder.used());
  expected.records_crc = group->header.records_crc;
  EXPECT_EQ(group->header, expected);
  ASSERT_EQ(group->records.size(), 3u);
  EXPECT_EQ(group->records[0], Record(MessageRecord{40, two, "a\nbcd\n"}));
  EXPECT_EQ(group->records[1], Record(CancelRecord{38}));
  EXPECT_EQ(group->records[2], Record(MessageRecord{42, {two[0]}, ""}));
}

TEST_F(GroupTest, AnEmptyGroupTakesOneBlock) {
  ByteSpan bytes = builder.finish(header_of(9, {2, 4096}));
  ASSERT_EQ(bytes.size(), block_bytes);
  auto group = decode_group(bytes);
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(group->header.entries, 0u);
  EXPECT_TRUE(group->records.empty());
}

TEST_F(GroupTest, TheMemoryIsUsedAgain) {
  Bytes first = whole();
  builder.clear();
  EXPECT_EQ(whole(), first);
}

TEST_F(GroupTest, AGroupIsFilledToItsLastByte) {
  const std::size_t room = builder.room();
  const std::size_t content = room - message_bytes(std::span(two).first(1), 0);
  auto refused = builder.add_message(std::span(two).first(1), std::string(content + 1, 'x'));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::exhausted);
  EXPECT_EQ(builder.room(), room);
  ASSERT_TRUE(builder.add_message(std::span(two).first(1), std::string(content, 'x')));
  EXPECT_EQ(builder.room(), 0u);
  EXPECT_FALSE(builder.add_cancel(1));
  ByteSpan bytes = builder.finish(header_of(9, {2, 4096}));
  EXPECT_EQ(bytes.size(), memory.size());
  EXPECT_TRUE(decode_group(bytes));
}

TEST_F(GroupTest, NamesThatLeadElsewhereAreRefused) {
  auto check = [](EntryName name) { return check_name(name).has_value(); };
  EXPECT_TRUE(check({"a", "", "n"}));
  EXPECT_TRUE(check({"a/b", ".x", "n"}));
  EXPECT_TRUE(check({"a/b", "x/y", "n:2,S"}));
  EXPECT_TRUE(check({std::string(maildir_bytes_max, 'm'), std::string(folder_bytes_max, 'f'),
                     std::string(name_bytes_max, 'n')}));
  EXPECT_FALSE(check({"", "", "n"}));
  EXPECT_FALSE(check({"/a", "", "n"}));
  EXPECT_FALSE(check({"a/", "", "n"}));
  EXPECT_FALSE(check({"a//b", "", "n"}));
  EXPECT_FALSE(check({"a/../b", "", "n"}));
  EXPECT_FALSE(check({"./a", "", "n"}));
  EXPECT_FALSE(check({std::string_view("a\0b", 3), "", "n"}));
  EXPECT_FALSE(check({"a", "/x", "n"}));
  EXPECT_FALSE(check({"a", "..", "n"}));
  EXPECT_FALSE(check({"a", "", ""}));
  EXPECT_FALSE(check({"a", "", "x/n"}));
  EXPECT_FALSE(check({"a", "", ".."}));
  EXPECT_FALSE(check({std::string(maildir_bytes_max + 1, 'm'), "", "n"}));
  EXPECT_FALSE(check({"a", std::string(folder_bytes_max + 1, 'f'), "n"}));
  EXPECT_FALSE(check({"a", "", std::string(name_bytes_max + 1, 'n')}));
  EXPECT_FALSE(builder.add_message(std::vector<EntryName>{{"a/..", "", "n"}}, ""));
  EXPECT_FALSE(builder.add_message({}, ""));
  EXPECT_FALSE(builder.add_message(std::vector<EntryName>(names_max + 1, {"a", "", "n"}), ""));
  EXPECT_EQ(builder.records(), 0u);
}

TEST_F(GroupTest, EveryChangedBitIsFound) {
  const Bytes bytes = whole();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes changed = bytes;
    changed[bit / 8] ^= std::byte(1u << bit % 8);
    ASSERT_FALSE(decode_group(changed)) << bit;
  }
}

TEST_F(GroupTest, EveryTruncationIsFound) {
  const Bytes bytes = whole();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(decode_group(ByteSpan(bytes).first(size)));
  Bytes longer = bytes;
  longer.resize(2 * block_bytes);
  EXPECT_FALSE(decode_group(longer));
}

TEST_F(GroupTest, ANewerVersionIsNamed) {
  Bytes bytes = whole();
  store_le(bytes.data() + 4, std::uint16_t{2});
  seal(bytes);
  auto group = decode_group(bytes);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, Errc::invalid);
  EXPECT_EQ(group.error().message, "the group 9 has version 2, and this program reads version 1");
  BlockHeader block = look_at_block(bytes, this_log, {2, 4096});
  EXPECT_EQ(block.kind, BlockKind::version);
  EXPECT_EQ(block.header.number, 9u);
  EXPECT_EQ(block.version, 2u);
}

TEST_F(GroupTest, ABlockIsOfThisLogAndThisPlaceOrNone) {
  Bytes bytes = whole();
  BlockHeader block = look_at_block(bytes, this_log, {2, 4096});
  EXPECT_EQ(block.kind, BlockKind::group);
  EXPECT_EQ(block.header, decode_group(bytes)->header);
  EXPECT_TRUE(has_whole_records(block.header, bytes));
  EXPECT_EQ(look_at_block(bytes, this_log, {2, 8192}).kind, BlockKind::none) << "a copy at another place";
  block = look_at_block(bytes, other_log, {2, 4096});
  EXPECT_EQ(block.kind, BlockKind::foreign);
  EXPECT_EQ(block.header.incarnation, this_log);
  bytes[200] ^= std::byte{1};  // in the records
  block = look_at_block(bytes, this_log, {2, 4096});
  EXPECT_EQ(block.kind, BlockKind::group);
  EXPECT_FALSE(has_whole_records(block.header, bytes));
  bytes[50] ^= std::byte{1};
  EXPECT_EQ(look_at_block(bytes, this_log, {2, 4096}).kind, BlockKind::none);
  EXPECT_EQ(look_at_block({}, this_log, {2, 4096}).kind, BlockKind::none);
}

// The checksums are right, and the content is impossible.
struct Impossible {
  const char* what;
  std::size_t offset;
  std::uint64_t value;
  int width;
  const char* message;
};

TEST_F(GroupTest, ImpossibleNumbersAreRefused) {
  const Bytes bytes = whole();
  const std::size_t record = group_header_bytes;
  const char* header = "the header of the group 9 contradicts itself";
  const Impossible cases[] = {
      {"entries: more", 48, 4, 4, "the records of group 9 are not those of its header"},
      {"entries: a flood", 48, 0xffffffff, 4, header},
      {"records: fewer", 52, 2, 4, "the records of group 9 are not those of its header"},
      {"records: more", 52, 4, 4, "record 3 of group 9: a record is cut off"},
      {"records: a flood", 52, 0xffffffff, 4, header},
      {"bytes: not whole blocks", 56, 4097, 4, header},
      {"bytes: none", 56, 0, 4, header},
      {"bytes: too many", 56, 8192, 4, header},
      {"used: beyond the end", 60, 4097, 4, header},
      {"used: less than the header", 60, 100, 4, header},
      {"retired: entries of this group", 96, 41, 8, header},
      {"oldest: a later group", 104, 10, 8, header},
      {"oldest: this group, at another place", 104, 9, 8, header},
      {"oldest: not at a block", 112, 8193, 8, header},
      {"oldest: beyond any segment", 112, std::uint64_t{1} << 40, 8, header},
      {"oldest: no such segment", 128, 200, 4, header},
      {"first entry: would overflow", 40, ~std::uint64_t{0}, 8, header},
      {"record: unknown kind", record, 3, 4, "record 0 of group 9: a record has the unknown kind 3"},
      {"record: beyond the end", record + 4, 100000, 4, "record 0 of group 9: a record is cut off"},
      {"message: no name", record + 8, 0, 4, "record 0 of group 9: a message has 0 names"},
      {"message: a flood of names", record + 8, 0x7fffffff, 4,
       "record 0 of group 9: a message has 2147483647 names"},
      {"message: one name too many", record + 8, 3, 4, "record 0 of group 9: a name is cut off, or too long"},
      {"message: content beyond the end", record + 12, 7, 4,
       "record 0 of group 9: a message has 6 bytes of content instead of 7"},
      {"message: a long Maildir", record + 16, 0xffffffff, 4,
       "record 0 of group 9: a name is cut off, or too long"},
  };
  for (const Impossible& c : cases) {
    Bytes changed = bytes;
    std::memcpy(changed.data() + c.offset, &c.value, static_cast<std::size_t>(c.width));
    seal(changed);
    auto group = decode_group(changed);
    ASSERT_FALSE(group) << c.what;
    EXPECT_EQ(group.error().code, Errc::corrupt) << c.what;
    EXPECT_EQ(group.error().message, c.message) << c.what;
  }
}

TEST_F(GroupTest, ACancelOfALaterEntryIsRefused) {
  ASSERT_TRUE(builder.add_cancel(40));
  auto group = decode_group(builder.finish(header_of(9, {2, 4096})));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().message,
            "record 0 of group 9: a cancel record names entry 40, which is in no earlier group");
}

TEST_F(GroupTest, ANameThatLeadsElsewhereIsRefusedInALogToo) {
  ASSERT_TRUE(builder.add_message(std::vector<EntryName>{{"aa/bb", "", "n"}}, ""));
  ByteSpan made = builder.finish(header_of(9, {2, 4096}));
  Bytes bytes(made.begin(), made.end());
  std::memcpy(bytes.data() + group_header_bytes + 20, "../bb", 5);
  seal(bytes);
  auto group = decode_group(bytes);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().message, "record 0 of group 9: \"../bb\" is no path of a Maildir in the spool");
}

TEST_F(GroupTest, RandomRecordsSurvive) {
  SeededRandom random(31);
  for (int round = 0; round < 300; ++round) {
    builder.clear();
    std::vector<std::string> texts;
    std::uint64_t names = 0;
    for (auto n = random.below(6); n > 0; --n) {
      std::vector<EntryName> at(1 + random.below(3), {"m/x", ".f", "name"});
      if (builder.add_message(at, std::string(random.below(3000), 'c'))) names += at.size();
    }
    auto group = decode_group(builder.finish(header_of(9, {2, 4096})));
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ(group->header.entries, names);
  }
}

}  // namespace
}  // namespace twinloft::intake_log
