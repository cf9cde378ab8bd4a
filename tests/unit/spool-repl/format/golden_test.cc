// Golden bytes: later releases must be able to read today's disks and messages.
//
// A difference is a change of the format. It needs a new version number, and code that reads the old version.
// With TWINLOFT_GOLDEN_WRITE=1 in the environment, the files are written instead of compared.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "samples.h"
#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/format/bitmap.h"
#include "twinloft/spool-repl/format/digest.h"
#include "twinloft/spool-repl/format/short_record.h"
#include "twinloft/spool-repl/format/spill.h"

namespace twinloft::repl {
namespace {

using namespace samples;

// Lines of 32 bytes. Zero bytes at the end are omitted, and restored from `size`.
std::string render(ByteSpan bytes) {
  std::size_t used = bytes.size();
  while (used > 0 && bytes[used - 1] == std::byte{0}) --used;
  std::string out = fmt::format("size {}\n", bytes.size());
  for (std::size_t at = 0; at < used; at += 32)
    out += to_hex(bytes.subspan(at, std::min<std::size_t>(32, used - at))) + "\n";
  return out;
}

void compare(const std::string& name, ByteSpan bytes) {
  std::string path = std::string(TWINLOFT_GOLDEN_DIR) + "/" + name + ".hex";
  if (std::getenv("TWINLOFT_GOLDEN_WRITE")) {
    std::ofstream(path) << render(bytes);
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(render(bytes), text.str()) << name << ": the format has changed";
}

TEST(Golden, Record) {
  compare("record-data-body", encoded(small_body()));
  compare("record-epoch-body", encoded(epoch_body()));
  compare("record-frame", encoded(frame()));
}

TEST(Golden, HashesAndBlockCrc) {
  std::vector<std::byte> out;
  Writer w(out);
  w.put_bytes(genesis_hash(volume, volume_blocks).bytes);
  w.put(block_crc(volume, Lba{5}, block(0xa1)));
  w.put_bytes(hash_payload(pointers({block(0xa1), block(0xa2)})).bytes);
  compare("digests", out);
}

TEST(Golden, SuperblockAndLabel) {
  compare("superblock", encoded(superblock()));
  compare("data-label", encoded(label()));
}

TEST(Golden, DiskStates) {
  for (const auto& [name, state] : disk_states()) {
    std::vector<std::byte> bytes;
    Writer w(bytes);
    put_disk_state(w, state);
    compare(std::string("disk-state-") + name, bytes);
  }
}

Bytes golden(const std::string& name) {
  std::ifstream file(std::string(TWINLOFT_GOLDEN_DIR) + "/" + name + ".hex");
  EXPECT_TRUE(file) << name;
  std::string word, hex;
  std::size_t size = 0;
  file >> word >> size;
  while (file >> word) hex += word;
  Bytes out(size);
  for (std::size_t i = 0; i < hex.size() / 2; ++i)
    out[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
  return out;
}

// The superblock without the fields that version 4 does not have.
Superblock sample_of_v4() {
  Superblock sb = superblock();
  sb.epochs.forgotten_force = {};
  sb.split_brains.clear();
  sb.arbiter = 0;
  sb.cut_for = {};
  return sb;
}

void expect_upgrade(const Bytes& old, const Superblock& expected) {
  auto read = decode_superblock(old);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, expected);
  Bytes upgraded = encoded(*read);
  EXPECT_EQ(load_le<std::uint32_t>(upgraded.data() + 12), 6u);
  EXPECT_EQ(decode_superblock(upgraded).value(), expected);
}

// A superblock of an older release is read, and from then on written in this release's version.
TEST(Golden, ASuperblockOfVersion4IsRead) {
  Bytes old = golden("superblock-v4");
  ASSERT_EQ(load_le<std::uint32_t>(old.data() + 12), 4u);
  expect_upgrade(old, sample_of_v4());
}

TEST(Golden, ASuperblockOfVersion5IsRead) {
  Bytes old = golden("superblock-v5");
  ASSERT_EQ(load_le<std::uint32_t>(old.data() + 12), 5u);
  expect_upgrade(old, superblock());
}

// The five fields of version 5, in the order of its bytes.
struct FieldsV5 {
  Epoch source;
  std::uint64_t until = 0;
  Epoch base_epoch;
  std::uint64_t base = 0;
  EpochEntry newest;
};
Bytes superblock_v5(const FieldsV5& f) {
  Bytes fields;
  Writer w(fields);
  put_epoch(w, f.source);
  w.put(f.until);
  put_epoch(w, f.base_epoch);
  w.put(f.base);
  put_entry(w, f.newest);
  Bytes old = golden("superblock-v5");
  std::copy(fields.begin(), fields.end(), old.begin() + 200);
  store_le(old.data() + 8, std::uint32_t{0});
  store_le(old.data() + 8, crc32c(old));
  return old;
}

constexpr std::uint64_t all_ones = UINT64_MAX;

TEST(Golden, EachDiskStateOfVersion5IsRead) {
  using namespace disk_state;
  EpochEntry newest{epoch, Lsn{31}, 2, 0b110, epoch_witnessed, mark_of(older_epoch)};
  struct Case {
    FieldsV5 fields;
    DiskState expected;
  };
  const Case cases[] = {
      {{}, Consistent{}},
      {{{}, 0, older_epoch, 7, newest}, Consistent{}},
      {{{}, 1001, epoch, 0, {}}, Refilling{Lsn{1001}, epoch}},
      {{older_epoch, 1001, older_epoch, 950, newest},
       Damaged{Lsn{1001}, older_epoch, newest, {older_epoch, Lsn{950}}}},
      {{older_epoch, 0, {}, 0, {}}, Damaged{Lsn{0}, older_epoch, std::nullopt, {}}},
      // The volume's id stood for an unknown epoch.
      {{{1, volume}, 1001, older_epoch, 950, {}},
       Damaged{Lsn{1001}, std::nullopt, std::nullopt, {older_epoch, Lsn{950}}}},
      {{epoch, all_ones, older_epoch, 950, {}}, Syncing{epoch, LogPoint{older_epoch, Lsn{950}}}},
      {{epoch, all_ones, {}, 0, {}}, Syncing{epoch, LogPoint{}}},
      {{epoch, all_ones, {}, all_ones, {}}, Syncing{epoch, std::nullopt}},
  };
  for (const Case& c : cases) {
    Superblock expected = superblock();
    expected.disk = c.expected;
    expect_upgrade(superblock_v5(c.fields), expected);
  }
}

// No release has written such a superblock.
TEST(Golden, AnImpossibleDiskStateOfVersion5IsRefused) {
  for (const FieldsV5& f : {FieldsV5{{}, all_ones, {}, 0, {}}, FieldsV5{epoch, 1001, {}, all_ones, {}}}) {
    auto read = decode_superblock(superblock_v5(f));
    ASSERT_FALSE(read) << f.until;
    EXPECT_EQ(read.error().code, Errc::corrupt);
  }
}

// A full table may have lost forced promotions, and version 4 did not keep them elsewhere.
TEST(Golden, AFullTableOfVersion4MayHaveForgottenForce) {
  Bytes old = golden("superblock-v4");
  constexpr std::size_t table_at = 536;
  store_le(old.data() + table_at, epoch_table_max);
  for (std::uint32_t i = 0; i < epoch_table_max; ++i) {
    std::byte* entry = old.data() + table_at + 8 + i * entry_bytes(EntryForm::in_flags);
    std::memset(entry, 0, entry_bytes(EntryForm::in_flags));
    store_le(entry, std::uint64_t{20 + i});        // counter
    store_le(entry + 24, std::uint64_t{100 + i});  // start
    store_le(entry + 32, std::uint64_t{0b11});     // in-sync set
    store_le(entry + 40, std::uint32_t{2});        // writer
  }
  store_le(old.data() + 8, std::uint32_t{0});
  store_le(old.data() + 8, crc32c(old));
  auto read = decode_superblock(old);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->epochs.forgotten_force, (ForgottenForce{{19, {}}, {}, ~ReplicaSet{0}}));
  EpochTable here;
  EXPECT_EQ(forcers_unknown_to(here, read->epochs), ~ReplicaSet{0});
  here.note({{18, volume}, Lsn{90}, 2, 0b11});
  EXPECT_EQ(forcers_unknown_to(here, read->epochs), ~ReplicaSet{0});
  here.note({{20, volume}, Lsn{100}, 2, 0b11});
  EXPECT_EQ(forcers_unknown_to(here, read->epochs), 0u);
}

// No older wire version is spoken. The refusal names both releases.
TEST(Golden, AWireHeaderOfVersion7IsRefusedInWords) {
  auto refused = decode_wire_header(golden("wire-header-v7"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::conflict);
  EXPECT_NE(refused.error().message.find("wire version 7, this program 8"), std::string::npos)
      << refused.error().message;
}

TEST(Golden, BitmapPage) {
  std::uint64_t words[] = {0x8000000000000001, 0, 0x0f};
  std::vector<std::byte> page(block_size);
  encode_bitmap_page(volume, 2, 7, words, page);
  compare("bitmap-page", page);
}

TEST(Golden, DigestPage) {
  std::vector<Digest> digests{digest_zeros, digest_unknown,
                              digest_of(volume, Lba{2}, std::vector<std::byte>(block_size, std::byte{9}))};
  std::vector<std::byte> page(block_size);
  encode_digest_page(volume, 0, digests, page);
  compare("digest-page", page);
}

TEST(Golden, SpillHeader) {
  Bytes header(spill_header_bytes);
  encode_spill_header(
      {7, mark(17), mark(44), {9 * block_size}, {40 * block_size}, 12, 30 * block_size, 0xc0ffee}, volume, 2,
      header);
  compare("spill-header", header);
}

TEST(Golden, Wire) {
  const char* names[] = {
      "match-request", "match-state",   "probe",       "probe-reply",       "begin",        "record",
      "ack",           "commit",        "refuse",      "node-state",        "claim",        "claim-reply",
      "sync-begin",    "sync-ready",    "sync-data",   "sync-ack",          "sync-end",     "sync-check",
      "sync-differ",   "sync-progress", "fetch-block", "fetched-block",     "behind",       "keep-for",
      "read-blocks",   "blocks-read",   "take-from",   "take-after",        "record-marks", "relay-lost",
      "subscribe",     "subscribed",    "taken",       "subscription-ended"};
  auto all = messages();
  ASSERT_EQ(std::size(names), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(wire_type(all[i]), 32 + i);
    compare(std::string("wire-") + names[i], encoded(all[i]));
  }
  using Kind = PayloadRun::Kind;
  std::vector<PayloadRun> runs{{Kind::content, 2, 0}, {Kind::zeros, 3, 0}, {Kind::repeat, 1, 1}};
  std::vector<std::byte> shorter;
  encode_short_record_prefix({7, {std::byte{0xaa}, std::byte{0xbb}}}, 300, runs, shorter);
  compare("wire-short-record", shorter);
  std::vector<std::byte> header(wire_header_bytes);
  encode_wire_header({38, 56, 0x01020304}, header);
  compare("wire-header", header);
}

}  // namespace
}  // namespace twinloft::repl
