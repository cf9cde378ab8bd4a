// The files of a spill, and the thread that writes them.
#include "spill_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "twinloft/base/crc32c.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::daemon {
namespace {

const Uuid uuid = Uuid::parse("6f1c1c0e-8f5b-4c55-9d0a-3f0a8e0b1d10").value();

struct SpillStoreTest : testing::Test {
  std::filesystem::path root;
  VolumeSettings settings;

  void SetUp() override {
    const char* tmp = std::getenv("TMPDIR");
    std::string name = std::string(tmp ? tmp : "/tmp") + "/tl-spill-XXXXXX";
    root = ::mkdtemp(name.data());
    settings.name = "mail";
    settings.replica = 1;
    settings.spill = root / "spill";
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  static std::vector<std::byte> chunk(std::uint64_t number) {
    std::vector<std::byte> out(spill_header_bytes + block_size, static_cast<std::byte>(number));
    std::uint32_t crc = crc32c(ByteSpan(out).subspan(spill_header_bytes));
    auto mark = [](std::uint64_t lsn) { return LogMark{Lsn{lsn}, {}}; };
    SpillChunk c{number, mark(10 * number), mark(10 * number + 10), {}, {block_size}, 1, block_size, crc};
    encode_spill_header(c, uuid, 1, MutableByteSpan(out).first(spill_header_bytes));
    return out;
  }
  std::vector<std::uint64_t> found(const SpillDirectory& d) {
    std::vector<std::uint64_t> out;
    for (const SpillChunk& c : d.find(uuid, 1)) out.push_back(c.number);
    return out;
  }
};
using Numbers = std::vector<std::uint64_t>;

TEST_F(SpillStoreTest, WhatIsWrittenIsFoundAgain) {
  auto d = SpillDirectory::open(settings);
  ASSERT_TRUE(d) << d.error().message;
  for (std::uint64_t n : {8, 9, 10, 11}) ASSERT_TRUE(d->write(n, chunk(n)));
  EXPECT_EQ(found(*d), (Numbers{8, 9, 10, 11})) << "in the order of the numbers, not of the names";
  EXPECT_TRUE(d->read(9).value() == chunk(9));
  EXPECT_EQ(d->read(9, 100)->size(), 100u);
  EXPECT_EQ(d->read(7).error().sys, ENOENT);
  ASSERT_TRUE(d->drop_before(10));
  EXPECT_EQ(d->numbers(), (Numbers{10, 11}));
}

TEST_F(SpillStoreTest, FilesOfOthersAreLeftAlone) {
  auto d = SpillDirectory::open(settings);
  ASSERT_TRUE(d);
  ASSERT_TRUE(d->write(3, chunk(3)));
  for (const char* name :
       {"mail-1-2", "mail-1-x.spill", "mail-1-.spill", "mail-2-2.spill", "other-1-2.spill", "2.spill"})
    std::ofstream(root / "spill" / name) << "x";
  EXPECT_EQ(d->numbers(), Numbers{3});
  ASSERT_TRUE(d->drop_before(100));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root / "spill"), {}), 6);
}

TEST_F(SpillStoreTest, AnInterruptedWriteLeavesNoChunk) {
  auto d = SpillDirectory::open(settings);
  ASSERT_TRUE(d);
  ASSERT_TRUE(d->write(3, chunk(3)));
  std::ofstream(root / "spill/mail-1-4.spill.new") << "the beginning of a chunk";
  EXPECT_EQ(found(*d), Numbers{3});
  ASSERT_TRUE(d->write(4, chunk(4))) << "and is in nobody's way";
  EXPECT_EQ(found(*d), (Numbers{3, 4}));
}

TEST_F(SpillStoreTest, WhatNoStartCanUseIsRemoved) {
  auto d = SpillDirectory::open(settings);
  ASSERT_TRUE(d);
  for (std::uint64_t n : {3, 5, 6}) ASSERT_TRUE(d->write(n, chunk(n)));
  std::ofstream(root / "spill/mail-1-9.spill") << "of a later release";
  std::ofstream(root / "spill/mail-1-7.spill.new") << "the beginning of a chunk";
  std::ofstream(root / "spill/mail-2-7.spill.new") << "of another replica";
  auto used = d->find(uuid, 1);
  d->drop_others(used);
  EXPECT_EQ(d->numbers(), (Numbers{5, 6}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root / "spill"), {}), 3);
}

TEST_F(SpillStoreTest, ADirectoryThatCannotBeMadeIsNamed) {
  settings.spill = root / "missing/spill";
  auto d = SpillDirectory::open(settings);
  ASSERT_FALSE(d);
  EXPECT_NE(d.error().message.find("missing/spill"), std::string::npos) << d.error().message;
}

// A tree like that of /sys/dev/block: a volume manager on a partition of the disk 7:1.
TEST_F(SpillStoreTest, ADeviceBelowOthersIsFound) {
  auto device = [&](const std::filesystem::path& at, const char* number) {
    std::filesystem::create_directories(root / at / "slaves");
    std::ofstream(root / at / "dev") << number << "\n";
  };
  device("disk", "7:1");
  device("disk/part", "259:3");
  std::ofstream(root / "disk/part/partition") << "1\n";
  device("mapper", "253:0");
  std::filesystem::create_directory_symlink(root / "disk/part", root / "mapper/slaves/part");
  auto is = [](unsigned high, unsigned low) { return [=](dev_t d) { return d == makedev(high, low); }; };
  for (const char* from : {"mapper", "disk/part", "disk"})
    EXPECT_TRUE(stacks_on(root / from, is(7, 1), 8)) << from;
  EXPECT_FALSE(stacks_on(root / "mapper", is(7, 2), 8));
  EXPECT_FALSE(stacks_on(root / "disk", is(253, 0), 8)) << "what lies above does not count";
  std::filesystem::create_directory_symlink(root / "mapper", root / "disk/slaves/loop");
  EXPECT_FALSE(stacks_on(root / "mapper", is(7, 2), 8)) << "a circle ends";
}

// A mount over the directory, or a rename, does not lead the files elsewhere.
TEST_F(SpillStoreTest, TheOpenDirectoryIsUsed) {
  auto d = SpillDirectory::open(settings);
  ASSERT_TRUE(d);
  std::filesystem::rename(root / "spill", root / "moved");
  std::filesystem::create_directory(root / "spill");
  ASSERT_TRUE(d->write(3, chunk(3)));
  EXPECT_TRUE(std::filesystem::exists(root / "moved/mail-1-3.spill"));
  EXPECT_EQ(found(*d), Numbers{3});
}

struct SpillThreadTest : SpillStoreTest {
  OsClock clock;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 16}).value();
  void run_until(const std::function<bool()>& done) {
    for (int i = 0; i < 20'000 && !done(); ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
    ASSERT_TRUE(done());
  }
};

TEST_F(SpillThreadTest, WritesReadsAndDropsAreInOrder) {
  SpillStore store(*loop, std::move(*SpillDirectory::open(settings)));
  std::vector<int> errors;
  std::vector<std::byte> read;
  bool missing = false;
  store.write({1, 5, chunk(5)}, [&](int e, const std::string&) { errors.push_back(e); });
  store.write({2, 6, chunk(6)}, [&](int e, const std::string&) { errors.push_back(e); });
  store.read({3, 6},
             [&](int e, std::vector<std::byte> bytes) { errors.push_back(e), read = std::move(bytes); });
  store.drop({6}, [](const std::string& trouble) { ADD_FAILURE() << trouble; });
  store.read({4, 5}, [&](int e, std::vector<std::byte>) { missing = e == ENOENT; });
  run_until([&] { return missing; });
  EXPECT_EQ(errors, (std::vector<int>{0, 0, 0}));
  EXPECT_TRUE(read == chunk(6));
}

TEST_F(SpillThreadTest, AFailureHasItsErrnoAndItsFile) {
  SpillStore store(*loop, std::move(*SpillDirectory::open(settings)));
  std::filesystem::remove_all(root / "spill");
  int error = 0;
  std::string trouble;
  store.write({1, 5, chunk(5)}, [&](int e, const std::string& t) { error = e, trouble = t; });
  run_until([&] { return error != 0; });
  EXPECT_EQ(error, ENOENT);
  EXPECT_NE(trouble.find("mail-1-5.spill"), std::string::npos) << trouble;
}

TEST_F(SpillThreadTest, NothingIsCalledAfterItsEnd) {
  {
    SpillStore store(*loop, std::move(*SpillDirectory::open(settings)));
    for (std::uint64_t n = 1; n <= 20; ++n)
      store.write({n, n, chunk(n)}, [](int, const std::string&) { ADD_FAILURE() << "called"; });
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(1)));
}

}  // namespace
}  // namespace twinloft::repl::daemon
