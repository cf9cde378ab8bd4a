#include "twinloft/lmtpd/intake/placing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "../support/fixture.h"
#include "../support/recording_ops.h"
#include "twinloft/lmtpd/intake/log_directory.h"
#include "twinloft/lmtpd/intake/mailbox.h"

namespace twinloft::lmtpd {
namespace {

namespace fs = std::filesystem;

const std::string placed_text = "From: a@example.com\nSubject: hello\n\nFirst line\n";

class PlacingTest : public test::DirTest {
 protected:
  PlacingTest() {
    make_maildir("ann/Maildir");
    make_maildir("ann/Maildir/.Lists");
    fs::create_directory(path(log_directory_name));
    test::DirTest::give_to_mail_user(dir_);
    for (const auto& entry : fs::recursive_directory_iterator(dir_)) give_to_mail_user(entry.path());
    become_mail_user();
    root_ = Fd(::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    log_ = Fd(::open(path(log_directory_name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  void make_maildir(const std::string& name) {
    for (const char* box : {"new", "cur", "tmp"}) fs::create_directories(path(name + "/" + box));
  }
  void write_file(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  PlacedEntry& add(const std::string& name, const std::string& folder = "", bool settled = false) {
    entries_.push_back({entries_.size(), "ann/Maildir", folder, name, placed_text, settled});
    return entries_.back();
  }
  // All three passes.
  Status run() {
    PlacingConfig config{root_.get(), log_.get(), Uuid::parse("2a64ab35-4699-4b8c-8bd4-683fee16b378").value(),
                         [](const std::string& folder) { return folder != ".Trash"; }};
    Placing placing(config, entries_, ops_);
    placing.look();
    looked_ = placing.outcomes();
    Status placed = placing.place([&]() -> Status {
      ++batches_;
      return {};
    });
    placing.verify();
    outcomes_ = placing.outcomes();
    return placed;
  }
  // Each such step fails, after the first ones.
  void fail_each(const std::string& what, int with, int first = 0) {
    ops_.clear();
    ops_.fail_at = -1;
    ops_.fail_with = with;
    ops_.before = [this, what, first, number = 0](const std::string& step) mutable {
      if (step == what && first-- <= 0) ops_.fail_at = number;
      ++number;
    };
  }
  Fate fate(std::size_t index = 0) const { return outcomes_.at(index).fate; }
  std::string stuck(const std::string& ending) {
    for (const std::string& name : test::list(path(".twinloft-intake/stuck")))
      if (name.ends_with(ending)) return test::slurp(path(".twinloft-intake/stuck/" + name));
    return "none";
  }
  std::size_t files(const std::string& directory) { return test::list(path(directory)).size(); }

  Fd root_, log_;
  test::RecordingOps ops_;
  std::vector<PlacedEntry> entries_;
  std::vector<PlacedOutcome> looked_, outcomes_;
  int batches_ = 0;
};

TEST_F(PlacingTest, AMissingMessageGetsItsNameInNew) {
  add("1.host,S=49,W=53");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(looked_[0].fate, Fate::missing);
  EXPECT_EQ(fate(), Fate::delivered);
  EXPECT_EQ(test::slurp(path("ann/Maildir/new/1.host,S=49,W=53")), placed_text);
  EXPECT_EQ(files("ann/Maildir/tmp"), 0u);
  EXPECT_EQ(batches_, 1);
  struct stat about{};
  ASSERT_EQ(::stat(path("ann/Maildir/new/1.host,S=49,W=53").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
}

// The content is durable before the name exists, and the name before the entry counts as delivered.
TEST_F(PlacingTest, ContentThenNameBothSynced) {
  add("1.host");
  ASSERT_TRUE(run().has_value());
  const std::size_t wrote = ops_.at("write"), synced = ops_.at("syncfs", wrote);
  const std::string link = "link " + path("ann/Maildir/tmp") + " " + path("ann/Maildir/new");
  EXPECT_LT(synced, ops_.at(link));
  EXPECT_EQ(ops_.at(link), ops_.at(link, synced));
  EXPECT_NE(ops_.at("syncfs", ops_.at(link)), std::string::npos);
}

TEST_F(PlacingTest, AMessageThatIsThereIsLeft) {
  write_file("ann/Maildir/new/1.host,S=49", placed_text);
  write_file("ann/Maildir/cur/2.host,S=49:2,FS", placed_text);
  write_file("ann/Maildir/.Lists/cur/3.host:2,", placed_text);
  add("1.host,S=49");
  add("2.host,S=49");
  add("3.host", ".Lists");
  ASSERT_TRUE(run().has_value());
  for (std::size_t i : {0, 1, 2}) EXPECT_EQ(fate(i), Fate::present) << i;
  EXPECT_EQ(files("ann/Maildir/new"), 1u);
  EXPECT_EQ(files("ann/Maildir/.Lists/new"), 0u);
  EXPECT_EQ(batches_, 0);
}

// A message in another folder of the same name is another message.
TEST_F(PlacingTest, OnlyTheFolderOfTheEntryCounts) {
  write_file("ann/Maildir/new/1.host", placed_text);
  add("1.host", ".Lists");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(), Fate::delivered);
  EXPECT_EQ(files("ann/Maildir/.Lists/new"), 1u);
}

TEST_F(PlacingTest, WhatAReaderMovedStaysAway) {
  add("1.host", "", true);
  entries_.push_back({7, "bob/Maildir", "", "2.host", placed_text, true});
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(0), Fate::gone);
  EXPECT_EQ(fate(1), Fate::gone) << "with its whole Maildir";
  EXPECT_EQ(files("ann/Maildir/new"), 0u);
  EXPECT_FALSE(fs::exists(path("bob")));
}

TEST_F(PlacingTest, OtherContentIsReportedAndKept) {
  write_file("ann/Maildir/new/1.host", "");
  write_file("ann/Maildir/cur/2.host:2,S", std::string(placed_text.size(), 'x'));
  add("1.host");
  add("2.host", "", true);
  ASSERT_TRUE(run().has_value());
  for (std::size_t i : {0, 1}) {
    EXPECT_EQ(fate(i), Fate::differs) << i;
    EXPECT_EQ(test::slurp(path(outcomes_[i].file)), placed_text) << i;
  }
  EXPECT_EQ(test::slurp(path("ann/Maildir/new/1.host")), "");
}

// mincore(2): how many pages of the file are in memory.
std::size_t pages_in_memory(int fd, std::size_t bytes) {
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT_NE(map, MAP_FAILED);
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(::mincore(map, bytes, pages.data()), 0);
  ::munmap(map, bytes);
  return static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char page) { return page & 1; }));
}

// The page cache may have what the disk never got. So the comparison leaves no page of the file in memory.
TEST_F(PlacingTest, ContentIsComparedWithTheDisk) {
  write_file("ann/Maildir/new/1.host", placed_text);
  Fd file(::open(path("ann/Maildir/new/1.host").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::fsync(file.get()), 0);
  ASSERT_EQ(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  ASSERT_EQ(pages_in_memory(file.get(), placed_text.size()), 0u);
  add("1.host");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(), Fate::present);
  EXPECT_EQ(pages_in_memory(file.get(), placed_text.size()), 0u);
}

TEST_F(PlacingTest, AMissingMaildirIsNotMade) {
  entries_.push_back({7, "bob/Maildir", "", "1.host", placed_text, false});
  add("2.host");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(0), Fate::stuck);
  EXPECT_EQ(outcomes_[0].file, ".twinloft-intake/stuck/2a64ab35-7.eml");
  EXPECT_EQ(stuck(".eml"), placed_text);
  EXPECT_NE(stuck(".txt").find("Why: bob/Maildir does not exist\n"), std::string::npos) << stuck(".txt");
  EXPECT_NE(stuck(".txt").find("Maildir: bob/Maildir\nFolder: (the inbox)\nName: new/1.host\n"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(path("bob")));
  EXPECT_EQ(fate(1), Fate::delivered) << "one entry does not block the others";
}

TEST_F(PlacingTest, LinksBelowAMaildirAreNotFollowed) {
  make_maildir("eve/Maildir");
  fs::create_directory_symlink("../../eve/Maildir", path("ann/Maildir/.Away"));
  fs::remove_all(path("ann/Maildir/.Lists/new"));
  fs::create_directory_symlink("../../../eve/Maildir/new", path("ann/Maildir/.Lists/new"));
  add("1.host", ".Away");
  add("2.host", ".Lists");
  add("3.host", "../../eve/Maildir");
  add("../../../eve/Maildir/new/4.host");
  ASSERT_TRUE(run().has_value());
  for (std::size_t i : {0, 1, 2, 3}) EXPECT_EQ(fate(i), Fate::stuck) << i;
  EXPECT_EQ(outcomes_[0].why, "ann/Maildir/.Away is a symbolic link, which replay does not follow");
  EXPECT_EQ(files("eve/Maildir/new"), 0u);
}

TEST_F(PlacingTest, AMissingTmpIsNotMade) {
  fs::remove_all(path("ann/Maildir/tmp"));
  add("1.host");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(), Fate::stuck);
  EXPECT_EQ(outcomes_[0].why, "ann/Maildir/tmp does not exist");
}

TEST_F(PlacingTest, AnothersMaildirIsLeftAlone) {
  ASSERT_TRUE(test::is_root());
  become_root();
  ASSERT_EQ(::chown(path("ann/Maildir/new").c_str(), 61235, test::mail_uid), 0);
  ASSERT_EQ(::chmod(path("ann/Maildir/new").c_str(), 0777), 0);
  become_mail_user();
  add("1.host");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(), Fate::stuck);
  EXPECT_EQ(outcomes_[0].why, "ann/Maildir/new has uid 61235, and lmtpd's user has 61234");
  EXPECT_EQ(files("ann/Maildir/new"), 0u);
}

// Without this, a message whose folder cannot be listed would be delivered twice.
TEST_F(PlacingTest, AFolderThatCannotBeListedBlocksOnlyItself) {
  write_file("ann/Maildir/new/1.host", placed_text);
  add("1.host");
  add("2.host", ".Lists");
  fail_each("list " + path("ann/Maildir/new"), EIO);
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(0), Fate::stuck);
  EXPECT_EQ(fate(1), Fate::delivered);
  EXPECT_EQ(files("ann/Maildir/new"), 1u);
}

// A full disk takes no copy either. The message stays in the log.
TEST_F(PlacingTest, AFullDiskKeepsTheMessageInTheLog) {
  add("1.host");
  fail_each("write", ENOSPC);
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(), Fate::kept);
  EXPECT_EQ(outcomes_[0].sys, ENOSPC);
  EXPECT_EQ(files("ann/Maildir/new") + files("ann/Maildir/tmp"), 0u);
}

// The names of a batch that did not become durable may be lost: no entry counts as delivered.
TEST_F(PlacingTest, AFailedSyncEndsTheReplay) {
  for (const char* when : {"before", "after"}) {
    entries_.clear();
    add("1.host").name = std::string(when) + ".host";
    fail_each("syncfs", EIO, when[0] == 'b' ? 0 : 1);
    Status placed = run();
    ASSERT_FALSE(placed.has_value()) << when;
    EXPECT_EQ(placed.error().sys, EIO);
    EXPECT_EQ(fate(), Fate::missing) << when;
    EXPECT_EQ(files("ann/Maildir/tmp"), 0u) << when;
    EXPECT_EQ(batches_, 0);
  }
  EXPECT_FALSE(fs::exists(path("ann/Maildir/new/before.host")));
}

TEST_F(PlacingTest, ASecondRunFindsWhatTheFirstPlaced) {
  add("1.host");
  ASSERT_TRUE(run().has_value());
  fs::rename(path("ann/Maildir/new/1.host"), path("ann/Maildir/cur/1.host:2,S"));
  write_file("ann/Maildir/tmp/2.host", "half");  // of a run that was killed
  add("2.host");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(fate(0), Fate::present);
  EXPECT_EQ(fate(1), Fate::delivered);
  EXPECT_EQ(test::slurp(path("ann/Maildir/new/2.host")), placed_text);
  EXPECT_EQ(files("ann/Maildir/new"), 1u);
}

TEST_F(PlacingTest, MaildirsizeGetsALineWhereItExists) {
  add("1.host");
  ASSERT_TRUE(run().has_value());
  EXPECT_FALSE(fs::exists(path("ann/Maildir/maildirsize")));
  make_maildir("ann/Maildir/.Trash");
  write_file("ann/Maildir/maildirsize", "1000S\n10 1\n");
  add("2.host", ".Lists");
  add("3.host", ".Trash");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(test::slurp(path("ann/Maildir/maildirsize")),
            "1000S\n10 1\n" + std::to_string(placed_text.size()) + " 1\n");
}

TEST_F(PlacingTest, ManyMessagesGoInBatches) {
  for (int i = 0; i < 300; ++i) add(std::to_string(i) + ".host", i % 2 ? "" : ".Lists");
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(batches_, 3);
  EXPECT_EQ(files("ann/Maildir/new") + files("ann/Maildir/.Lists/new"), 300u);
  EXPECT_TRUE(std::ranges::all_of(outcomes_, [](const auto& o) { return o.fate == Fate::delivered; }));
}

}  // namespace
}  // namespace twinloft::lmtpd
