// user+detail@ with the built-in agent: the chosen folder, and the folders that are created or left alone.
#include <fstream>

#include "../support/maildir_fixture.h"

namespace twinloft::lmtpd {
namespace {

class DetailFoldersTest : public test::MaildirFixture {
 protected:
  void use(FoldersByDetail detail, char separator = '.', std::uint32_t folders_max = 1000,
           bool subscribe = true) {
    use_spool(dir_, DurabilityWay::fsync, {detail, separator, folders_max, subscribe});
  }
  // Delivers, and returns the new/ directories with a message, relative to the Maildir.
  std::string deliver_to(const std::string& detail) {
    recipient_.detail = detail;
    Reply reply = deliver();
    if (reply.code != 250) return fmt::format("{} {}", reply.code, detail_);
    std::string out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(maildir_)) {
      if (!entry.is_regular_file() || entry.path().parent_path().filename() != "new") continue;
      out += (out.empty() ? "" : " ") +
             std::filesystem::relative(entry.path().parent_path(), maildir_).string();
      std::filesystem::remove(entry.path());
    }
    return out;
  }
  void make_folder(const std::string& name) {
    for (const char* part : {"cur", "new", "tmp"})
      std::filesystem::create_directories(maildir_ + "/" + name + "/" + part);
  }
  bool is_there(const std::string& name) { return std::filesystem::exists(maildir_ + "/" + name); }
};

TEST_F(DetailFoldersTest, WithoutTheSettingAllIsInTheInbox) {
  make_folder(".lists");
  EXPECT_EQ(deliver_to("lists"), "new");
  EXPECT_EQ(detail_, "");
}

TEST_F(DetailFoldersTest, AnExistingFolderIsUsedAndNoneIsMade) {
  use(FoldersByDetail::existing);
  EXPECT_EQ(deliver_to("lists"), "new");
  EXPECT_FALSE(is_there(".lists"));
  EXPECT_EQ(detail_, "in the inbox: there is no folder .lists");
  make_folder(".lists");
  EXPECT_EQ(deliver_to("lists"), ".lists/new");
  EXPECT_EQ(detail_, "in .lists");
  EXPECT_EQ(deliver_to("Lists"), "new") << "names are case-sensitive";
  EXPECT_EQ(deliver_to(""), "new");
  EXPECT_FALSE(is_there("subscriptions"));
}

TEST_F(DetailFoldersTest, AUsersOwnSettingCounts) {
  make_folder(".lists");
  recipient_.user.detail_folders = FoldersByDetail::existing;
  EXPECT_EQ(deliver_to("lists"), ".lists/new");
  EXPECT_EQ(deliver_to("other"), "new");
  recipient_.user.detail_folders = FoldersByDetail::create;
  EXPECT_EQ(deliver_to("other"), ".other/new");
  use(FoldersByDetail::create);
  recipient_.user.detail_folders = FoldersByDetail::none;
  EXPECT_EQ(deliver_to("lists"), "new");
}

TEST_F(DetailFoldersTest, ARemovedFolderIsNotMadeAgainWhereItMustExist) {
  use(FoldersByDetail::existing);
  make_folder(".lists");
  EXPECT_EQ(deliver_to("lists"), ".lists/new");
  std::filesystem::remove_all(maildir_ + "/.lists");
  EXPECT_EQ(deliver_to("lists"), "new");
  EXPECT_FALSE(is_there(".lists"));
}

TEST_F(DetailFoldersTest, AMissingFolderIsMadeAsDovecotMakesIt) {
  use(FoldersByDetail::create, '/');
  EXPECT_EQ(deliver_to("Lists/Entwürfe"), ".Lists.Entw&APw-rfe/new");
  EXPECT_EQ(detail_, "in .Lists.Entw&APw-rfe, which is new");
  EXPECT_TRUE(is_there("new")) << "the inbox too";
  EXPECT_TRUE(is_there(".Lists.Entw&APw-rfe/cur"));
  EXPECT_TRUE(is_there(".Lists.Entw&APw-rfe/maildirfolder"));
  EXPECT_EQ(test::slurp(maildir_ + "/subscriptions"), "V\t2\n\nLists\tEntw&APw-rfe\n");
  EXPECT_FALSE(is_there("subscriptions.lock"));
  EXPECT_EQ(deliver_to("Lists/Entwürfe"), ".Lists.Entw&APw-rfe/new");
  EXPECT_EQ(deliver_to("Other"), ".Other/new");
  EXPECT_EQ(test::slurp(maildir_ + "/subscriptions"), "V\t2\n\nLists\tEntw&APw-rfe\nOther\n");
}

TEST_F(DetailFoldersTest, ANewFolderAndAllAboveItAreDurableBeforeTheReply) {
  use(FoldersByDetail::create);
  ASSERT_EQ(deliver_to("lists"), ".lists/new");
  std::string m = "/example.org/ann/Maildir";
  std::size_t renamed = ops_.at("rename " + m + "/.lists/tmp " + m + "/.lists/new");
  ASSERT_NE(renamed, std::string::npos);
  for (const std::string& directory : {m + "/.lists/new", m + "/.lists", m, std::string("/example.org/ann"),
                                       std::string("/example.org"), std::string()}) {
    std::size_t synced = ops_.at("fsync " + directory, renamed);
    EXPECT_NE(synced, std::string::npos) << directory;
  }
  std::size_t replaced = ops_.at("replace " + m + "/subscriptions");
  EXPECT_LT(ops_.at("fsync " + m + "/subscriptions.lock"), replaced);
  EXPECT_LT(replaced, ops_.at("fsync " + m, renamed));
  ops_.clear();
  ASSERT_EQ(deliver_to("lists"), ".lists/new");
  EXPECT_EQ(ops_.at("fsync " + m), std::string::npos) << "it is known to be durable";
}

TEST_F(DetailFoldersTest, ADetailNeverLeadsOutOfTheMaildir) {
  use(FoldersByDetail::create, '/');
  for (const char* detail : {"..", "../bob", "a/../../bob", "/etc", "~root", ".", "a/", "\xff", "a.b"}) {
    EXPECT_EQ(deliver_to(detail), "new") << detail;
    EXPECT_EQ(detail_, "in the inbox: the detail names no folder");
  }
  EXPECT_EQ(test::list(maildir_).size(), 3u) << "cur, new, tmp";
  EXPECT_EQ(test::list(dir_ + "/example.org").size(), 1u);
}

TEST_F(DetailFoldersTest, ALinkNeverLeadsToAnotherUsersMail) {
  for (auto detail : {FoldersByDetail::existing, FoldersByDetail::create}) {
    use(detail);
    std::string other = dir_ + "/example.org/bob/Maildir";
    for (const char* part : {"cur", "new", "tmp"}) {
      std::filesystem::create_directories(other + "/" + part);
      std::filesystem::create_directories(maildir_ + "/" + part);
    }
    std::filesystem::remove(maildir_ + "/.link");
    std::filesystem::create_symlink("../../bob/Maildir", maildir_ + "/.link");
    EXPECT_EQ(deliver_to("link"), "new");
    EXPECT_NE(detail_.find("in the inbox: "), std::string::npos) << detail_;
    EXPECT_TRUE(test::list(other + "/new").empty());
  }
}

TEST_F(DetailFoldersTest, WhatIsNoDirectoryIsLeftAlone) {
  use(FoldersByDetail::create);
  make_folder("");
  std::ofstream(maildir_ + "/.lists") << "a file";
  EXPECT_EQ(deliver_to("lists"), "new");
  EXPECT_EQ(test::slurp(maildir_ + "/.lists"), "a file");
}

TEST_F(DetailFoldersTest, NoMoreFoldersAreMadeThanAllowed) {
  use(FoldersByDetail::create, '.', 2);
  EXPECT_EQ(deliver_to("a"), ".a/new");
  EXPECT_EQ(deliver_to("b"), ".b/new");
  EXPECT_EQ(deliver_to("c"), "new");
  EXPECT_EQ(detail_, "in the inbox: creating .c would exceed maildir.folders_max = 2");
  EXPECT_EQ(deliver_to("a"), ".a/new") << "an existing folder is used";
}

TEST_F(DetailFoldersTest, AHeldLockLeavesTheFolderUnsubscribedAndTheMailDelivered) {
  use(FoldersByDetail::create);
  make_folder("");
  std::ofstream(maildir_ + "/subscriptions.lock") << "Dovecot's";
  EXPECT_EQ(deliver_to("lists"), ".lists/new");
  EXPECT_NE(detail_.find("not subscribed: subscriptions.lock: another program holds it"), std::string::npos)
      << detail_;
  EXPECT_EQ(test::slurp(maildir_ + "/subscriptions.lock"), "Dovecot's");
  EXPECT_FALSE(is_there("subscriptions"));
}

TEST_F(DetailFoldersTest, AFailedSubscriptionLosesNeitherTheOldOnesNorTheMail) {
  use(FoldersByDetail::create);
  make_folder("");
  std::ofstream(maildir_ + "/subscriptions") << "V\t2\n\nold\n";
  ASSERT_EQ(deliver_to("first"), ".first/new");
  auto calls = ops_.calls();
  // Each step from the lock to the replaced file.
  auto at = [&](const std::string& end) {
    return static_cast<int>(
        std::ranges::find_if(calls, [&](const std::string& call) { return call.ends_with(end); }) -
        calls.begin());
  };
  const std::string before = test::slurp(maildir_ + "/subscriptions");
  for (int step = at("/subscriptions") - 1, n = 0; step <= at("subscriptions.lock") + 3; ++step, ++n) {
    ops_.clear();
    ops_.fail_at = step;
    ops_.fail_with = ENOSPC;
    EXPECT_EQ(deliver_to("folder" + std::to_string(n)), ".folder" + std::to_string(n) + "/new") << step;
    EXPECT_NE(detail_.find("not subscribed"), std::string::npos) << detail_;
    EXPECT_EQ(test::slurp(maildir_ + "/subscriptions"), before);
    EXPECT_FALSE(is_there("subscriptions.lock"));
  }
}

// The lock of a killed process. Its age decides.
TEST_F(DetailFoldersTest, ALockThatNobodyHoldsIsRemoved) {
  use(FoldersByDetail::create);
  make_folder("");
  for (int age : {3600, -3600}) {
    std::string lock = maildir_ + "/subscriptions.lock", name = "f" + std::to_string(age + 10000);
    std::ofstream(lock) << "half a file";
    std::filesystem::last_write_time(
        lock, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(age));
    EXPECT_EQ(deliver_to(name), "." + name + "/new");
    EXPECT_EQ(detail_, "in ." + name + ", which is new");
    EXPECT_NE(test::slurp(maildir_ + "/subscriptions").find(name + "\n"), std::string::npos);
    EXPECT_FALSE(is_there("subscriptions.lock") || is_there("subscriptions.lock.stale"));
  }
}

TEST_F(DetailFoldersTest, WhatALockHasKeptFromBeingSubscribedIsSubscribedLater) {
  use(FoldersByDetail::create);
  make_folder("");
  std::ofstream(maildir_ + "/subscriptions.lock") << "Dovecot's";
  for (const char* name : {"a", "b"}) EXPECT_EQ(deliver_to(name), "." + std::string(name) + "/new");
  EXPECT_FALSE(is_there("subscriptions"));
  std::filesystem::remove(maildir_ + "/subscriptions.lock");
  EXPECT_EQ(deliver_to("a"), ".a/new");
  EXPECT_EQ(test::slurp(maildir_ + "/subscriptions"), "V\t2\n\na\nb\n");
  std::ofstream(maildir_ + "/subscriptions") << "V\t2\n\n";
  EXPECT_EQ(deliver_to("a"), ".a/new");
  EXPECT_EQ(test::slurp(maildir_ + "/subscriptions"), "V\t2\n\n")
      << "a folder that the user has unsubscribed stays unsubscribed";
}

// Another program writes a file under the lock's name. This file does not replace `subscriptions`.
TEST_F(DetailFoldersTest, ALockThatWasTakenOverIsNotUsed) {
  use(FoldersByDetail::create);
  make_folder("");
  std::ofstream(maildir_ + "/subscriptions") << "V\t2\n\nold\n";
  ops_.after_read = [&](const std::string&) {
    std::filesystem::remove(maildir_ + "/subscriptions.lock");
    std::ofstream(maildir_ + "/subscriptions.lock") << "another program's";
  };
  EXPECT_EQ(deliver_to("lists"), ".lists/new");
  EXPECT_NE(detail_.find("not subscribed"), std::string::npos) << detail_;
  EXPECT_EQ(test::slurp(maildir_ + "/subscriptions"), "V\t2\n\nold\n");
  EXPECT_EQ(test::slurp(maildir_ + "/subscriptions.lock"), "another program's");
}

// Senders choose these names.
TEST_F(DetailFoldersTest, ADirectoryThatIsNoMailFolderIsLeftAlone) {
  for (auto detail : {FoldersByDetail::existing, FoldersByDetail::create}) {
    use(detail);
    make_folder("");
    std::filesystem::create_directories(maildir_ + "/.ssh");
    std::ofstream(maildir_ + "/.ssh/authorized_keys") << "keys";
    EXPECT_EQ(deliver_to("ssh"), "new");
    EXPECT_EQ(detail_, "in the inbox: .ssh exists, but is not a mail folder");
    EXPECT_EQ(test::list(maildir_ + "/.ssh").size(), 1u);
  }
}

TEST_F(DetailFoldersTest, NoFolderIsMadeWhereTheHomeIs) {
  use(FoldersByDetail::create);
  make_folder(".lists");
  for (const std::string& home : {maildir_, maildir_ + "/.home"}) {
    recipient_.user.home = home;
    EXPECT_EQ(deliver_to("dovecot.sieve"), "new");
    EXPECT_EQ(detail_,
              "in the inbox: there is no folder .dovecot.sieve, and none is created in a Maildir that "
              "contains the home");
    EXPECT_FALSE(is_there(".dovecot.sieve"));
    EXPECT_EQ(deliver_to("lists"), ".lists/new") << "an existing folder is used";
  }
  std::filesystem::create_symlink(maildir_, maildir_ + "-link");
  recipient_.user.home = maildir_ + "-link";
  EXPECT_EQ(deliver_to("dovecot.sieve"), "new") << "another name of the home";
  EXPECT_FALSE(is_there(".dovecot.sieve"));
  recipient_.user.home = maildir_ + "2";
  EXPECT_EQ(deliver_to("new"), ".new/new");
}

TEST_F(DetailFoldersTest, AReadErrorIsNoMissingFolder) {
  use(FoldersByDetail::existing);
  make_folder(".lists");
  ops_.clear();
  ops_.fail_at = 2;  // the calls open root, Maildir, folder
  recipient_.detail = "lists";
  EXPECT_EQ(deliver().code, 451);
  EXPECT_TRUE(test::list(maildir_ + "/new").empty());
}

}  // namespace
}  // namespace twinloft::lmtpd
