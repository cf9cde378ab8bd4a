// The core as a primary without peers: the answers to clients, and the content of the disks.
#include <gtest/gtest.h>

#include <cerrno>

#include "../support/memory_file.h"
#include "shell.h"
#include "twinloft/spool-repl/journal/recovery.h"

namespace twinloft::repl::core {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::uint32_t mib = 1u << 20;

// The volume's content after recovery from the present disks.
Bytes image_after_recovery(const Shell& shell) {
  MemoryFile journal(shell.journal), data(shell.data);
  auto recovered = journal::recover(journal, data);
  EXPECT_TRUE(recovered) << recovered.error().message;
  if (!recovered) return {};
  for (const StoredRecord& r : recovered->log.records) {
    if (r.body.mark().lsn <= recovered->log.commit) continue;
    std::size_t at = 0;
    for (const Extent& e : r.body.extents) {
      std::size_t n = std::size_t{e.blocks} * block_size;
      if (e.kind == ExtentKind::zeros) {
        std::memset(data.bytes.data() + e.lba.v * block_size, 0, n);
        continue;
      }
      std::memcpy(data.bytes.data() + e.lba.v * block_size, r.payload.data() + at, n);
      at += n;
    }
  }
  return std::move(data.bytes);
}

TEST(Single, AnswersFromMemoryAtOnceAndDurablyAfterAFlush) {
  Shell shell({.role = Role::primary, .config = alone()});
  Bytes in = filled(5000, 0x11), out(5000);
  auto write = shell.submit(ClientOp::write, 4096, 4096, in.data());
  EXPECT_EQ(shell.done.at(write), 0) << "a plain write is answered once it is in memory and ordered";
  auto read = shell.submit(ClientOp::read, 4096, 4096, out.data());
  EXPECT_EQ(shell.done.at(read), 0);
  EXPECT_EQ(out[4095], std::byte{0x11});
  auto flush = shell.submit(ClientOp::flush);
  EXPECT_FALSE(shell.is_done(flush)) << "not before the journal is written";
  shell.settle();
  EXPECT_EQ(shell.done.at(flush), 0);
  EXPECT_EQ(image_after_recovery(shell)[4096], std::byte{0x11});
}

TEST(Single, WritesAndFlushesOfATurnShareARecord) {
  Shell shell({.role = Role::primary, .config = alone()});
  shell.settle();
  std::uint64_t before = shell.core->status().records;
  Bytes in = filled(block_size, 0x11);
  for (std::uint64_t i = 0; i < 4; ++i) {
    shell.core->step(
        ClientRequest{ClientOp::write, false, i * block_size, block_size, in.data(), 900 + 2 * i});
    shell.core->step(ClientRequest{ClientOp::flush, false, 0, 0, nullptr, 901 + 2 * i});
  }
  shell.pass_time(Duration(0));
  EXPECT_EQ(shell.pending(Disk::journal_write), 1u);
  EXPECT_EQ(shell.core->status().records, before + 1);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_FALSE(shell.is_done(901 + 2 * i));
  shell.settle();
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(shell.done.at(901 + 2 * i), 0);
}

// A start that does not know of the commit could cut the record off, but its blocks would stay in the data
// area.
TEST(Single, NothingIsWrittenHomeBeforeTheSuperblockSaysThatItIsCommitted) {
  Shell shell({.role = Role::primary, .config = alone()});
  Bytes in = filled(block_size, 0x11);
  shell.submit(ClientOp::write, 0, block_size, in.data());
  shell.submit(ClientOp::flush);
  shell.settle();
  shell.step(CheckpointNow{});
  shell.settle();
  std::uint64_t before = shell.core->status().home_blocks_written;
  auto flush = (shell.submit(ClientOp::write, block_size, block_size, in.data()),
                shell.submit(ClientOp::flush));
  while (shell.complete_one()) {
  }
  ASSERT_TRUE(shell.is_done(flush));
  shell.held = [](Disk kind) { return kind == Disk::superblock; };
  shell.step(CheckpointNow{});
  while (shell.complete_one()) {
  }
  EXPECT_EQ(shell.core->status().home_blocks_written, before);
  shell.held = nullptr;
  shell.settle();
  EXPECT_EQ(shell.core->status().home_blocks_written, before + 1);
}

TEST(Single, FuaWaitsForTheJournalAndPlainWritesDoNot) {
  Shell shell({.role = Role::primary, .config = alone()});
  shell.settle();
  Bytes in = filled(block_size, 1);
  auto fua = shell.submit(ClientOp::write, 0, block_size, in.data(), true);
  EXPECT_FALSE(shell.is_done(fua));
  EXPECT_EQ(shell.pending(Disk::journal_write), 1u) << "FUA seals the batch at once";
  auto plain = shell.submit(ClientOp::write, block_size, block_size, in.data());
  EXPECT_TRUE(shell.is_done(plain));
  EXPECT_TRUE(shell.complete_one());
  EXPECT_EQ(shell.done.at(fua), 0);
}

TEST(Single, WriteAckDurableMakesEveryWriteWait) {
  Config config = alone();
  config.write_ack_durable = true;
  Shell shell({.role = Role::primary, .config = config});
  Bytes in = filled(block_size, 1);
  auto write = shell.submit(ClientOp::write, 0, block_size, in.data());
  auto trim = shell.submit(ClientOp::trim, 8192, 8192);
  EXPECT_FALSE(shell.is_done(write));
  EXPECT_FALSE(shell.is_done(trim));
  shell.settle();
  EXPECT_EQ(shell.done.at(write), 0);
  EXPECT_EQ(shell.done.at(trim), 0);
}

TEST(Single, AFlushWaitsForEarlierRecordsThatEndLater) {
  Shell shell({.role = Role::primary, .config = alone()});
  shell.settle();
  Bytes in = filled(block_size, 1);
  std::vector<std::uint64_t> flushes;
  for (std::uint64_t i = 0; i < 3; ++i) {
    shell.submit(ClientOp::write, i * block_size, block_size, in.data());
    flushes.push_back(shell.submit(ClientOp::flush));
  }
  ASSERT_EQ(shell.pending(Disk::journal_write), 3u);
  std::vector<std::uint64_t> order;
  shell.on_done = [&](std::uint64_t id, int) { order.push_back(id); };
  shell.settle();
  EXPECT_EQ(order, flushes) << "in order, whatever the order in which the disk's writes end";
}

TEST(Single, ABatchIsSealedInTime) {
  Config config = alone();
  config.seal_after = std::chrono::milliseconds(5);
  Shell shell({.role = Role::primary, .config = config});
  shell.settle();
  Bytes in = filled(block_size, 1);
  shell.submit(ClientOp::write, 0, block_size, in.data());
  EXPECT_EQ(shell.pending(Disk::journal_write), 0u);
  EXPECT_TRUE(shell.core->next_tick().has_value());
  shell.pass_time(std::chrono::milliseconds(4));
  EXPECT_EQ(shell.pending(Disk::journal_write), 0u);
  shell.pass_time(std::chrono::milliseconds(1));
  EXPECT_EQ(shell.pending(Disk::journal_write), 1u);
}

TEST(Single, AnAddressWrittenTwiceInABatchIsStoredOnce) {
  Shell shell({.role = Role::primary, .config = alone()});
  shell.settle();
  auto before = shell.core->status().records_bytes;
  Bytes in = filled(block_size, 1);
  for (int i = 0; i < 100; ++i) shell.submit(ClientOp::write, 0, block_size, in.data());
  shell.submit(ClientOp::flush);
  shell.settle();
  EXPECT_EQ(shell.core->status().records_bytes - before, 2u * block_size);
}

TEST(Single, RefusesWhatLiesOutside) {
  Shell shell({.role = Role::primary, .config = alone(), .volume_blocks = 16});
  Bytes b(2 * block_size);
  EXPECT_EQ(shell.done.at(shell.submit(ClientOp::write, 15 * block_size, 2 * block_size, b.data())), EINVAL);
  EXPECT_EQ(shell.done.at(shell.submit(ClientOp::read, 16 * block_size, 1, b.data())), EINVAL);
  EXPECT_EQ(shell.done.at(shell.submit(ClientOp::trim, 0, 17 * block_size)), EINVAL);
  EXPECT_EQ(shell.done.at(shell.submit(ClientOp::write, 16 * block_size, 0, b.data())), 0)
      << "an empty request succeeds";
}

TEST(Single, ZeroingReadsBackAsZerosAlsoAtItsEdges) {
  for (ClientOp op : {ClientOp::trim, ClientOp::write_zeroes}) {
    for (bool from_disk : {false, true}) {
      Shell shell({.role = Role::primary, .config = alone(), .volume_blocks = 16});
      Bytes ones = filled(6 * block_size, 1), out(6 * block_size);
      shell.submit(ClientOp::write, 0, 6 * block_size, ones.data());
      if (from_disk) {
        shell.step(CheckpointNow{});
        shell.submit(ClientOp::flush);
        shell.settle();
      }
      shell.submit(op, 100, 5 * block_size);
      shell.settle();
      shell.submit(ClientOp::read, 0, 6 * block_size, out.data());
      shell.settle();
      for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(out[i], std::byte(i < 100 || i >= 100 + 5 * block_size)) << "byte " << i;
    }
  }
}

TEST(Single, AFullRingStallsWritersUntilTheCheckpoint) {
  Shell shell({.role = Role::primary, .config = alone(), .volume_blocks = 8192});
  shell.held = [](Disk kind) { return kind == Disk::home_write; };
  Bytes in = filled(mib, 3);
  std::vector<std::uint64_t> writes;
  for (std::uint64_t i = 0; i < 24; ++i) {
    writes.push_back(shell.submit(ClientOp::write, i * mib, mib, in.data()));
    shell.settle();
  }
  EXPECT_FALSE(shell.is_done(writes.back())) << "24 MiB into a ring of 8";
  EXPECT_TRUE(shell.is_done(writes.front()));
  EXPECT_GT(shell.core->status().waiting_requests, 0u);
  auto flush = shell.submit(ClientOp::flush);
  shell.held = nullptr;
  shell.settle();
  for (auto id : writes) EXPECT_EQ(shell.done.at(id), 0);
  EXPECT_EQ(shell.done.at(flush), 0);
  EXPECT_EQ(shell.core->status().waiting_requests, 0u);
}

TEST(Single, AFullArenaStallsWritersUntilTheCheckpoint) {
  Shell shell({.role = Role::primary, .config = alone(), .volume_blocks = 16384, .ring_bytes = 128ull << 20});
  shell.held = [](Disk kind) { return kind == Disk::home_sync; };
  Bytes in = filled(mib, 3);
  std::vector<std::uint64_t> writes;
  for (std::uint64_t i = 0; i < 40; ++i) {
    writes.push_back(shell.submit(ClientOp::write, i * mib, mib, in.data()));
    shell.settle();
  }
  EXPECT_FALSE(shell.is_done(writes.back()));
  EXPECT_LT(shell.arena.free(), 300u);
  EXPECT_LT(shell.core->status().journal_used, shell.core->status().journal_size / 2)
      << "the wait is not for the ring";
  shell.held = nullptr;
  shell.settle();
  for (auto id : writes) EXPECT_EQ(shell.done.at(id), 0);
}

// One wait for room must not make all later rounds hurried.
TEST(Single, AStalledWriterHurriesOneRound) {
  Shell shell({.role = Role::primary, .config = alone(), .volume_blocks = 16384, .ring_bytes = 128ull << 20});
  int syncs = 0;  // number of syncs that may end
  shell.held = [&](Disk kind) { return kind == Disk::home_sync && syncs == 0; };
  shell.fault = [&](Disk kind) { return syncs -= kind == Disk::home_sync, 0; };
  Bytes in = filled(mib, 3);
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    last = shell.submit(ClientOp::write, i * mib, mib, in.data());
    while (shell.complete_one()) {
    }
  }
  ASSERT_FALSE(shell.is_done(last));
  auto rounds = [&] { return shell.core->status().checkpoints; };
  // Each round commits a record, so that there is always something left to write home.
  for (int i = 0; i < 20; ++i) {
    shell.submit(ClientOp::write, 0, block_size, in.data());
    shell.submit(ClientOp::flush);
    syncs = 1;
    while (shell.complete_one()) {
    }
  }
  ASSERT_TRUE(shell.is_done(last));
  auto before = rounds();
  for (int i = 0; i < 20; ++i) {
    shell.submit(ClientOp::write, 0, block_size, in.data());
    shell.submit(ClientOp::flush);
    syncs = 1;
    while (shell.complete_one()) {
    }
  }
  EXPECT_EQ(rounds(), before) << "the rest waits until it is due";
  EXPECT_GT(shell.core->status().dirty_blocks, 0u);
}

// The writer must not wait until a sixteenth of the arena is home.
TEST(Single, AStalledWriterGetsRoomInSmallPortions) {
  Shell shell({.role = Role::primary,
               .config = alone(),
               .volume_blocks = 65536,
               .ring_bytes = 128ull << 20,
               .arena_extra_blocks = 8192});
  ASSERT_GT(shell.arena.size() / 16, 700u);
  bool home_goes = false;
  std::uint64_t written = 0;
  shell.held = [&](Disk kind) { return kind == Disk::home_sync || (kind == Disk::home_write && !home_goes); };
  shell.fault = [&](Disk kind) { return written += kind == Disk::home_write, 0; };
  Bytes in = filled(block_size, 3);
  std::uint64_t last = 0;
  // No two blocks are adjacent, so that each needs its own write.
  for (std::uint64_t i = 0; i < 2 * shell.arena.size(); ++i) {
    last = shell.submit(ClientOp::write, 2 * i * block_size, block_size, in.data());
    while (shell.complete_one()) {
    }
    if (!shell.is_done(last)) break;
  }
  ASSERT_FALSE(shell.is_done(last));
  home_goes = true;
  while (!shell.is_done(last) && shell.complete_one()) {
  }
  EXPECT_TRUE(shell.is_done(last));
  EXPECT_LE(written, 512u) << "as many as are in flight, and a few more";
}

// Writers need not wait for the sync or the superblock. Reads use the data area from then on, and the journal
// still has the content.
TEST(Single, WhatIsHomeLeavesTheArenaBeforeItIsSynced) {
  ShellOptions options;
  options.role = Role::primary;
  options.config = alone();
  Shell s(options);
  s.held = [](Disk kind) { return kind == Disk::home_sync; };
  std::vector<std::byte> content(256 * block_size, std::byte{5}), back(content.size());
  s.submit(ClientOp::write, 0, static_cast<std::uint32_t>(content.size()), content.data());
  s.submit(ClientOp::flush);
  while (s.complete_one()) {
  }
  EXPECT_GE(s.arena.used(), 256u);
  s.step(CheckpointNow{});
  while (s.complete_one()) {
  }
  ASSERT_EQ(s.pending(Disk::home_sync), 1u);
  EXPECT_EQ(s.arena.used(), 0u);
  std::uint64_t read = s.submit(ClientOp::read, 0, static_cast<std::uint32_t>(back.size()), back.data());
  while (s.complete_one()) {
  }
  EXPECT_TRUE(s.is_done(read));
  EXPECT_EQ(back == content, true);
  EXPECT_EQ(s.core->status().tail, Lsn{0}) << "the records stay until it is synced";
}

// Zero extents use no slot of the arena. Without a limit, a client could have as many as fit into the
// journal.
TEST(Single, ZeroExtentsStallWritersLikeAFullArena) {
  ShellOptions options;
  options.role = Role::primary;
  options.config = alone();
  options.ring_bytes = 64u << 20;
  options.volume_blocks = 2 * (arena_blocks_min(options.config) + 1000);
  Shell s(options);
  s.held = [](Disk kind) { return kind == Disk::home_zero; };
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < s.arena.size() + 100; ++i) {
    ids.push_back(s.submit(ClientOp::trim, 2 * i * block_size, block_size));  // no two blocks are adjacent
    while (s.complete_one()) {
    }
  }
  std::size_t done = 0;
  for (std::uint64_t id : ids) done += s.is_done(id);
  EXPECT_EQ(done, s.arena.size());
  s.held = nullptr;
  s.settle();
  for (std::uint64_t id : ids) EXPECT_TRUE(s.is_done(id));
}

// mkfs trims a whole new volume. If the device has no zero operation, this would write the whole volume.
TEST(Single, WhatIsKnownToBeZerosIsNotWrittenAgain) {
  Shell s({.role = Role::primary, .config = alone(), .volume_blocks = 16384});
  std::uint64_t zeroed = 0;
  s.fault = [&](Disk kind) { return zeroed += kind == Disk::home_zero, 0; };
  auto settle = [&] {
    s.submit(ClientOp::flush);
    s.step(CheckpointNow{});
    s.settle();
  };
  s.submit(ClientOp::trim, 0, 64 * mib);
  settle();
  EXPECT_EQ(zeroed, 0u);
  EXPECT_EQ(s.core->status().journal_used, 0u) << "the tail does not wait";
  Bytes in = filled(mib, 7);
  s.submit(ClientOp::write, 10 * mib, mib, in.data());
  settle();
  s.submit(ClientOp::trim, 0, 64 * mib);
  settle();
  EXPECT_EQ(zeroed, 1u);
  EXPECT_EQ(s.data, Bytes(s.data.size()));
}

// After a start, blocks with the digest of zeros may have other content that an earlier process wrote home.
TEST(Single, AfterACrashZerosAreWrittenOnceMore) {
  Shell s({.role = Role::primary, .config = alone(), .volume_blocks = 16384});
  Bytes in = filled(4 * mib, 7);
  s.held = [](Disk kind) { return kind == Disk::home_sync; };
  for (std::uint64_t at = 0; at < 4; ++at) s.submit(ClientOp::write, at * mib, mib, in.data() + at * mib);
  s.submit(ClientOp::flush);
  s.step(CheckpointNow{});
  while (s.complete_one()) {
  }
  ASSERT_TRUE(std::equal(in.begin(), in.end(), s.data.begin()))
      << "written home, but with digests that are not durable";
  s.restart();
  s.held = nullptr;
  s.submit(ClientOp::trim, 0, 4 * mib);
  s.submit(ClientOp::flush);
  s.step(CheckpointNow{});
  s.settle();
  EXPECT_EQ(s.data, Bytes(s.data.size())) << "trimmed content is still in the data area";
}

// The tail also moves between the portions. The round ends with the last portion.
TEST(Single, ManyZerosGoHomeInPortions) {
  Config config = alone();
  config.zero_blocks_a_round = 1024;
  Shell s({.role = Role::primary, .config = config, .volume_blocks = 16384});
  Bytes in = filled(mib, 7);
  for (std::uint64_t at = 0; at < 32; ++at) s.submit(ClientOp::write, at * mib, mib, in.data());
  s.submit(ClientOp::flush);
  s.step(CheckpointNow{});
  s.settle();
  ASSERT_EQ(s.core->status().journal_used, 0u);
  std::uint64_t zeroed = 0, rounds = s.core->status().checkpoints;
  s.fault = [&](Disk kind) { return zeroed += kind == Disk::home_zero, 0; };
  for (std::uint64_t at = 0; at < 32; at += 2) {
    s.submit(ClientOp::trim, at * mib, 2 * mib);
    s.submit(ClientOp::flush);
    while (s.complete_one()) {
    }
  }
  std::uint64_t used = s.core->status().journal_used;
  bool moved_between = false;
  s.step(CheckpointNow{});
  while (s.complete_one()) {
    std::uint64_t now = s.core->status().journal_used;
    moved_between |= now > 0 && now < used;
  }
  EXPECT_TRUE(moved_between);
  EXPECT_EQ(s.core->status().journal_used, 0u);
  EXPECT_GE(s.core->status().checkpoints - rounds, 8u) << "32 MiB, 4 MiB at a time";
  EXPECT_GE(zeroed, 8u);
  EXPECT_EQ(s.data, Bytes(s.data.size()));
  EXPECT_TRUE(s.core->settled());
}

TEST(Single, SettlesWithEverythingHomeAndAllMemoryFree) {
  Shell shell({.role = Role::primary, .config = alone()});
  Bytes in = filled(mib, 7);
  shell.submit(ClientOp::write, 12345, mib, in.data());
  shell.submit(ClientOp::trim, 3 * mib, 8192);
  shell.submit(ClientOp::flush);
  shell.step(CheckpointNow{});
  shell.settle();
  EXPECT_TRUE(shell.core->settled());
  EXPECT_EQ(shell.arena.used(), 0u);
  EXPECT_EQ(shell.reads.used(), 0u);
  EXPECT_EQ(shell.core->status().dirty_blocks, 0u);
  EXPECT_EQ(shell.core->status().journal_used, 0u);
  EXPECT_TRUE(std::equal(in.begin(), in.end(), shell.data.begin() + 12345));
}

// ---- random requests against an array of bytes

class RandomClient {
 public:
  RandomClient(std::uint64_t seed, std::uint64_t volume_blocks)
      : random_(seed),
        shell_({.role = Role::primary, .config = config(), .volume_blocks = volume_blocks, .seed = seed}),
        model_(volume_blocks * block_size),
        stamp_(model_.size()) {
    shell_.on_done = [this](std::uint64_t id, int error) { finish(id, error); };
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
      if (random_.below(3) != 0) submit();
      for (auto n = random_.below(4); n > 0; --n) shell_.complete_one();
      if (random_.below(8) == 0) shell_.pass_time(std::chrono::milliseconds(random_.below(6)));
      if (random_.below(200) == 0) shell_.step(CheckpointNow{});
    }
    shell_.settle();
    EXPECT_TRUE(open_.empty()) << open_.size() << " requests are never answered";
    shell_.on_done = nullptr;
    Bytes out(model_.size());
    for (std::uint64_t at = 0; at < out.size(); at += mib)
      shell_.submit(ClientOp::read, at,
                    static_cast<std::uint32_t>(std::min<std::uint64_t>(mib, out.size() - at)),
                    out.data() + at);
    shell_.settle();
    EXPECT_TRUE(out == model_) << "the content read at the end";
    shell_.submit(ClientOp::flush);
    shell_.step(CheckpointNow{});
    shell_.settle();
    EXPECT_TRUE(shell_.data == model_) << "the data area after a checkpoint";
    EXPECT_EQ(shell_.arena.used(), 0u);
    EXPECT_EQ(shell_.reads.used(), 0u);
  }

 private:
  struct Open {
    ClientOp op;
    bool fua;
    std::uint64_t offset;
    std::uint32_t length;
    Bytes data;
    Bytes expected;       // for a read: the content that it must return
    std::uint64_t clock;  // the time of its submission
  };

  Config config() {
    Config c = alone();
    c.journal_writes_in_flight = static_cast<std::uint32_t>(1 + random_.below(4));
    c.home_writes_in_flight = static_cast<std::uint32_t>(1 + random_.below(8));
    c.checkpoint_idle = c.checkpoint_age = std::chrono::milliseconds(1 + random_.below(50));
    c.write_ack_durable = random_.below(6) == 0;
    return c;
  }

  bool overlaps(std::uint64_t offset, std::uint64_t length) const {
    for (const auto& [id, o] : open_)
      if (o.op != ClientOp::flush && offset < o.offset + o.length && o.offset < offset + length) return true;
    return false;
  }

  void submit() {
    if (open_.size() >= 12) return;
    Open o{};
    std::uint64_t kind = random_.below(20);
    o.op = kind < 9    ? ClientOp::write
           : kind < 14 ? ClientOp::read
           : kind < 16 ? ClientOp::trim
           : kind < 18 ? ClientOp::write_zeroes
                       : ClientOp::flush;
    o.fua = random_.below(8) == 0;
    o.clock = ++clock_;
    if (o.op != ClientOp::flush) {
      static constexpr std::uint32_t most[] = {64, 5000, 40000, mib};
      o.length = static_cast<std::uint32_t>(
          1 + random_.below(std::min<std::uint64_t>(most[random_.below(4)], model_.size())));
      o.offset = random_.below(model_.size() - o.length + 1);
      if (random_.below(3) == 0) {  // aligned, as file systems write
        o.offset = o.offset / block_size * block_size;
        o.length = (o.length + block_size - 1) / block_size * block_size;
        if (o.offset + o.length > model_.size()) return;
      }
      if (overlaps(o.offset, o.length)) return;
    }
    if (o.op == ClientOp::write || o.op == ClientOp::read) o.data.resize(o.length);
    if (o.op == ClientOp::write) random_.fill(o.data);
    auto from = model_.begin() + static_cast<std::ptrdiff_t>(o.offset);
    if (o.op == ClientOp::read) o.expected.assign(from, from + o.length);
    // No other request in flight overlaps this range, so the model changes at once. Until the answer, a mark
    // shows that no flush covers these bytes.
    if (o.op == ClientOp::write) std::copy(o.data.begin(), o.data.end(), from);
    if (o.op == ClientOp::trim || o.op == ClientOp::write_zeroes)
      std::fill(from, from + o.length, std::byte{0});
    if (o.op != ClientOp::read)
      std::fill_n(stamp_.begin() + static_cast<std::ptrdiff_t>(o.offset), o.length, UINT64_MAX);
    // The same numbers as the shell's: a request may be answered before submit() returns.
    auto [it, fresh] = open_.emplace(next_id_++, std::move(o));
    Open& r = it->second;
    auto id = shell_.submit(r.op, r.offset, r.length, r.data.data(), r.fua);
    ASSERT_EQ(id, next_id_ - 1);
  }

  void finish(std::uint64_t id, int error) {
    ASSERT_EQ(error, 0);
    Open o = std::move(open_.at(id));
    open_.erase(id);
    switch (o.op) {
      case ClientOp::read:
        ASSERT_TRUE(o.data == o.expected) << "read of " << o.offset << "+" << o.length;
        return;
      case ClientOp::flush:
        if (random_.below(12) == 0) check_durable(o.clock, nullptr);
        return;
      default:
        std::fill_n(stamp_.begin() + static_cast<std::ptrdiff_t>(o.offset), o.length, ++clock_);
        if (o.fua && random_.below(12) == 0) check_durable(0, &o);
    }
  }

  // Recovery from the present disks must find every write that was answered before the flush was submitted.
  void check_durable(std::uint64_t before, const Open* fua) {
    Bytes image = image_after_recovery(shell_);
    ASSERT_EQ(image.size(), model_.size());
    for (std::size_t i = 0; i < image.size(); ++i) {
      bool promised = fua ? i >= fua->offset && i < fua->offset + fua->length : stamp_[i] < before;
      if (promised && image[i] != model_[i]) FAIL() << "byte " << i << " was promised";
    }
    checked_++;
  }

 public:
  int checked() const { return checked_; }

 private:
  SeededRandom random_;
  Shell shell_;
  Bytes model_;
  std::vector<std::uint64_t> stamp_;  // for each byte: the time at which its last write was answered
  std::map<std::uint64_t, Open> open_;
  std::uint64_t next_id_ = 1, clock_ = 0;
  int checked_ = 0;
};

TEST(SingleProperty, ReadsAndDisksAgreeWithAnArrayOfBytes) {
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomClient client(seed, seed % 3 == 0 ? 1200 : 300 + seed);
    client.run(1500);
    checked += client.checked();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(checked, 8) << "number of checked flushes";
}

}  // namespace
}  // namespace twinloft::repl::core
