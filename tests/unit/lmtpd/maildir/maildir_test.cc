// The built-in Maildir agent: the files that it writes, the order of its syncs, and its refusals.
#include <regex>
#include <thread>

#include "../support/maildir_fixture.h"

namespace twinloft::lmtpd {
namespace {

using MaildirTest = test::MaildirFixture;

TEST_F(MaildirTest, WritesAMessageThatDovecotReads) {
  ASSERT_EQ(deliver().code, 250) << detail_;
  auto names = test::list(maildir_ + "/new");
  ASSERT_EQ(names.size(), 1u);
  std::smatch found;
  ASSERT_TRUE(
      std::regex_match(names[0], found, std::regex(R"(\d+\.M\d+P\d+Q0\.mail\.example\.org,S=(\d+),W=(\d+))")))
      << names[0];
  std::string text = test::slurp(maildir_ + "/new/" + names[0]);
  EXPECT_EQ(std::stoul(found[1]), text.size());
  EXPECT_EQ(std::stoul(found[2]),
            text.size() + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_TRUE(
      text.starts_with("Return-Path: <sender@example.com>\nDelivered-To: ann@example.org\nReceived: "));
  EXPECT_TRUE(text.ends_with("\nFrom: a@example.com\nSubject: hello\n\nFirst line\nSecond\n"));
  EXPECT_TRUE(test::list(maildir_ + "/tmp").empty());
  EXPECT_TRUE(std::filesystem::is_directory(maildir_ + "/cur"));
  struct stat about{};
  ASSERT_EQ(::stat((maildir_ + "/new/" + names[0]).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  EXPECT_EQ(about.st_uid, recipient_.user.uid);
}

TEST_F(MaildirTest, SaysWhatItDid) {
  for (DurabilityWay way : {DurabilityWay::fsync, DurabilityWay::group_sync}) {
    std::filesystem::remove_all(dir_ + "/example.org");
    use_spool(dir_, way, {.detail = FoldersByDetail::create});
    for (const char* detail : {"", "Lists"}) {
      recipient_.detail = detail;
      ASSERT_EQ(deliver().code, 250) << detail_;
      std::string folder = *detail ? "/.Lists" : "";
      auto names = test::list(maildir_ + folder + "/new");
      ASSERT_EQ(names.size(), 1u);
      EXPECT_EQ(outcome_.path, maildir_ + folder + "/new/" + names[0]);
      EXPECT_EQ(outcome_.bytes, std::filesystem::file_size(outcome_.path));
      EXPECT_EQ(to_string(outcome_.durable), to_string(way));
    }
  }
  recipient_.user.uid += 1;
  EXPECT_EQ(deliver().code, 451);
  EXPECT_EQ(outcome_.path, "");
  EXPECT_EQ(outcome_.bytes, 0u);
  EXPECT_EQ(outcome_.durable, MadeDurable::no);
}

TEST_F(MaildirTest, SyncsFileThenRenamesThenSyncsTheEntry) {
  ASSERT_EQ(deliver().code, 250);
  ops_.clear();
  ASSERT_EQ(deliver().code, 250);
  std::string m = "/example.org/ann/Maildir";
  EXPECT_EQ(ops_.calls(), (std::vector<std::string>{
                              "open root", "open " + m.substr(1) + "/tmp", "open " + m.substr(1) + "/new",
                              "create " + m + "/tmp/FILE", "write", "fsync " + m + "/tmp/FILE",
                              "rename " + m + "/tmp " + m + "/new", "fsync " + m + "/new"}));
}

// With data first the file has no name until its data is on the disk.
TEST_F(MaildirTest, WithDataFirstTheFileAppearsInNewByALink) {
  data_first_ = true;
  ASSERT_EQ(deliver().code, 250);
  ops_.clear();
  ASSERT_EQ(deliver().code, 250);
  std::string m = "/example.org/ann/Maildir";
  EXPECT_EQ(ops_.calls(), (std::vector<std::string>{
                              "open root", "open " + m.substr(1) + "/tmp", "open " + m.substr(1) + "/new",
                              "create unnamed " + m + "/new", "write", "write back " + m + "/new/FILE",
                              "link unnamed " + m + "/new", "fsync " + m + "/new"}));
  for (const std::string& name : test::list(maildir_ + "/new"))
    EXPECT_TRUE(test::slurp(maildir_ + "/new/" + name).ends_with("Second\n")) << name;
}

TEST_F(MaildirTest, AFileSystemWithoutUnnamedFilesIsAskedOnce) {
  data_first_ = true;
  for (int error : {EOPNOTSUPP, EISDIR, EINVAL}) {
    use_spool(dir_);
    ops_.clear();
    ops_.unnamed_error = error;
    for (int i = 0; i < 2; ++i) ASSERT_EQ(deliver().code, 250) << detail_;
    EXPECT_EQ(std::ranges::count(ops_.calls(), "create unnamed /example.org/ann/Maildir/new"), 1);
    EXPECT_EQ(std::ranges::count(ops_.calls(), "write back /example.org/ann/Maildir/tmp/FILE"), 2);
  }
  EXPECT_EQ(test::list(maildir_ + "/new").size(), 6u);
}

// A security module may refuse the link, which shows only at the end of the first message.
TEST_F(MaildirTest, AfterARefusedLinkTheNextMessageIsRenamed) {
  data_first_ = true;
  for (int error : {EOPNOTSUPP, EPERM, EACCES}) {
    std::filesystem::remove_all(dir_ + "/example.org");
    use_spool(dir_);
    ops_.link_unnamed_error = error;
    EXPECT_EQ(deliver().code, 451);
    EXPECT_TRUE(test::list(maildir_ + "/new").empty());
    EXPECT_EQ(deliver().code, 250) << detail_;
    EXPECT_EQ(test::list(maildir_ + "/new").size(), 1u);
  }
}

TEST_F(MaildirTest, AnUnnamedFileOnAFullDiskIs452AndIsTriedAgain) {
  data_first_ = true;
  ASSERT_EQ(deliver().code, 250);
  for (int* error : {&ops_.unnamed_error, &ops_.link_unnamed_error}) {
    *error = ENOSPC;
    EXPECT_EQ(deliver().code, 452);
    *error = 0;
    ops_.clear();
    EXPECT_EQ(deliver().code, 250) << detail_;
    EXPECT_NE(ops_.at("link unnamed /example.org/ann/Maildir/new"), std::string::npos);
  }
  EXPECT_TRUE(test::list(maildir_ + "/tmp").empty());
}

TEST_F(MaildirTest, ANewMaildirHasEveryParentSyncedBeforeTheReply) {
  ASSERT_EQ(deliver().code, 250);
  std::size_t renamed = ops_.at("rename /example.org/ann/Maildir/tmp /example.org/ann/Maildir/new");
  ASSERT_NE(renamed, std::string::npos);
  for (const char* directory :
       {"/example.org/ann/Maildir/new", "/example.org/ann/Maildir", "/example.org/ann", "/example.org", ""}) {
    std::size_t synced = ops_.at(std::string("fsync ") + directory);
    EXPECT_NE(synced, std::string::npos) << directory;
    EXPECT_GT(synced, renamed) << directory;  // after the last change of the directory
  }
}

TEST_F(MaildirTest, GroupSyncKeepsTheOrder) {
  use_spool(dir_, DurabilityWay::group_sync);
  ASSERT_EQ(deliver().code, 250);
  std::size_t written = ops_.at("write");
  std::size_t file_durable = ops_.at("syncfs");
  std::size_t renamed = ops_.at("rename /example.org/ann/Maildir/tmp /example.org/ann/Maildir/new");
  std::size_t entry_durable = ops_.at("syncfs", renamed);
  EXPECT_LT(written, file_durable);
  EXPECT_LT(file_durable, renamed);
  EXPECT_LT(renamed, entry_durable);
  EXPECT_NE(entry_durable, std::string::npos);
}

TEST_F(MaildirTest, AMaildirOfAnotherProgramIsMadeDurableOnce) {
  std::filesystem::create_directories(maildir_ + "/tmp");
  std::filesystem::create_directories(maildir_ + "/new");
  ASSERT_EQ(deliver().code, 250);
  EXPECT_NE(ops_.at("fsync /example.org"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_directory(maildir_ + "/cur"));
}

TEST_F(MaildirTest, ARemovedMaildirIsMadeAgain) {
  ASSERT_EQ(deliver().code, 250);
  std::filesystem::remove_all(maildir_);
  ops_.clear();
  ASSERT_EQ(deliver().code, 250) << detail_;
  EXPECT_NE(ops_.at("fsync /example.org/ann"), std::string::npos);
  EXPECT_EQ(test::list(maildir_ + "/new").size(), 1u);
}

// Another program replaces the directory between two deliveries, without a sync. The inode number is often
// the same.
TEST_F(MaildirTest, ANewDirectoryThatWasMadeAnewIsMadeDurable) {
  for (const char* remade : {"/new", ""}) {
    ASSERT_EQ(deliver().code, 250);
    ops_.clear();
    ASSERT_EQ(deliver().code, 250);
    EXPECT_EQ(ops_.at("fsync /example.org/ann/Maildir"), std::string::npos) << "it is known to be durable";
    std::filesystem::remove_all(maildir_ + remade);
    for (const char* name : {"", "/tmp", "/new", "/cur"}) std::filesystem::create_directory(maildir_ + name);
    ops_.clear();
    ASSERT_EQ(deliver().code, 250) << detail_;
    EXPECT_NE(ops_.at("fsync /example.org/ann/Maildir"), std::string::npos) << remade;
    EXPECT_NE(ops_.at("fsync /example.org/ann"), std::string::npos) << remade;
  }
}

TEST_F(MaildirTest, ManyAtOnceAreAllThereAndWhole) {
  for (DurabilityWay durability : {DurabilityWay::fsync, DurabilityWay::group_sync}) {
    std::filesystem::remove_all(dir_ + "/example.org");
    use_spool(dir_, durability);
    std::atomic<int> delivered{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 10; ++i) {
          auto handle = spool_->open();
          MessageBody body = test::in_memory(test::small_message);
          delivered += agent_->deliver(*handle, test::make_envelope(), recipient_, body).reply.code == 250;
        }
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(delivered, 80);
    auto names = test::list(maildir_ + "/new");
    EXPECT_EQ(names.size(), 80u);
    for (const auto& name : names) EXPECT_TRUE(test::slurp(maildir_ + "/new/" + name).ends_with("Second\n"));
  }
}

TEST_F(MaildirTest, ALargeMessageComesFromAFile) {
  std::string text = "Subject: large\r\n\r\n";
  while (text.size() < 3'000'000) text += "0123456789012345678901234567890123456789\r\n";
  ASSERT_EQ(deliver(test::in_file(text)).code, 250);
  auto names = test::list(maildir_ + "/new");
  ASSERT_EQ(names.size(), 1u);
  std::erase(text, '\r');
  EXPECT_TRUE(test::slurp(maildir_ + "/new/" + names[0]).ends_with(text));
}

TEST_F(MaildirTest, RefusesLoops) {
  Reply reply = deliver(test::in_memory("Delivered-To: ann@example.org\r\n\r\nagain\r\n"));
  EXPECT_EQ(reply.code, 554);
  EXPECT_EQ(reply.enhanced, "5.4.6");
  EXPECT_TRUE(test::list(dir_).empty());
}

TEST_F(MaildirTest, DeliveredToIsNotLookedAtWhereTheKeySaysSo) {
  agent_ = std::make_unique<MaildirAgent>(
      MaildirConfig{.hostname = "mail.example.org", .received_max = 2, .delivered_to_check = false}, *spool_,
      *syncs_, ops_, clock_);
  EXPECT_EQ(deliver(test::in_memory("Delivered-To: ann@example.org\r\n\r\nagain\r\n")).code, 250);
  EXPECT_EQ(deliver(test::in_memory("Received: a\r\nReceived: b\r\nReceived: c\r\n\r\nagain\r\n")).code, 554)
      << "hops are counted";
}

TEST_F(MaildirTest, RefusesUsersOfAnotherUidAndSaysSo) {
  recipient_.user.uid += 1;
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.5");
  EXPECT_NE(detail_.find("writes as"), std::string::npos) << detail_;
  recipient_.user.uid = 0;
  EXPECT_EQ(deliver().enhanced, "4.3.5");
  EXPECT_TRUE(test::list(dir_).empty());
}

TEST_F(MaildirTest, RefusesAMaildirOutsideTheSpool) {
  for (std::string outside :
       {dir_ + "x/Maildir", std::string("/tmp/Maildir"), dir_, dir_ + "/../x", std::string()}) {
    recipient_.user.maildir = outside;
    Reply reply = deliver();
    EXPECT_EQ(reply.code, 451) << outside;
    EXPECT_EQ(reply.enhanced, "4.3.5") << outside;
  }
}

TEST_F(MaildirTest, ALinkThatLeadsToNothingIsNamed) {
  std::filesystem::create_directories(dir_ + "/root");
  use_spool(dir_ + "/root");
  std::filesystem::create_symlink("nowhere", dir_ + "/root/example.org");
  EXPECT_EQ(deliver().enhanced, "4.3.5");
  EXPECT_NE(detail_.find("it is a symbolic link to a missing directory"), std::string::npos) << detail_;
}

TEST_F(MaildirTest, RefusesALinkThatLeadsOutOfTheSpool) {
  std::filesystem::create_directories(dir_ + "/outside/ann/Maildir/new");
  std::filesystem::create_directories(dir_ + "/outside/ann/Maildir/tmp");
  std::filesystem::create_directories(dir_ + "/root");
  use_spool(dir_ + "/root");
  for (std::string target : {dir_ + "/outside", std::string("../outside")}) {
    std::filesystem::remove(dir_ + "/root/example.org");
    std::filesystem::create_symlink(target, dir_ + "/root/example.org");
    Reply reply = deliver();
    EXPECT_EQ(reply.code, 451);
    EXPECT_EQ(reply.enhanced, "4.3.5") << detail_;
    EXPECT_NE(detail_.find("symbolic link"), std::string::npos) << detail_;
  }
  EXPECT_TRUE(test::list(dir_ + "/outside/ann/Maildir/new").empty());
  EXPECT_TRUE(test::list(dir_ + "/outside/ann/Maildir/tmp").empty());
}

}  // namespace
}  // namespace twinloft::lmtpd
