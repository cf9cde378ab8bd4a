// A copy into a Maildir: its name and owner, and attacks by the user.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "delivery.h"

namespace twinloft::repl::salvage {
namespace {

namespace fs = std::filesystem;

class MaildirCopy : public Delivery {
 protected:
  struct stat about(const std::string& path) {
    struct stat out{};
    EXPECT_EQ(::lstat((winner_ / path).c_str(), &out), 0) << path;
    return out;
  }
  // Delivers the loser's only message, at `path`, and returns the path of the copy.
  std::string copied(const std::string& path, const std::string& content = late("one")) {
    loser_.put(path, content);
    extract();
    DeliverReport report = run();
    EXPECT_EQ(report.count(Fate::delivered), 1u) << detail(report);
    auto found = winner_.find("written after the parting");
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? "" : found[0];
  }
  std::string refusal(const std::string& path) {
    loser_.put(path, late("one"));
    extract();
    DeliverReport report = run();
    EXPECT_EQ(report.count(Fate::failed), 1u);
    EXPECT_TRUE(winner_.find("written after the parting").empty());
    return detail(report);
  }
};

TEST_F(MaildirCopy, BytesNameFlagsAndTime) {
  fs::create_directories(loser_ / (ann + "/cur"));
  std::string before = ann + "/cur/9.a:2,SaXFT";
  loser_.put(before, late("one"));
  timespec times[2] = {{5, 0}, {1'700'000'000, 123'000'000}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (loser_ / before).c_str(), times, 0), 0);
  extract();
  run();
  auto found = winner_.find("written after the parting");
  ASSERT_EQ(found.size(), 1u);
  std::size_t bytes = late("one").size();
  std::string content = late("one");
  auto lines = static_cast<std::size_t>(std::count(content.begin(), content.end(), '\n'));
  EXPECT_TRUE(found[0].starts_with(ann + "/cur/1700000000.M123000S")) << found[0];
  EXPECT_TRUE(found[0].ends_with(fmt::format(".salvage,S={},W={}:2,FST", bytes, bytes + lines))) << found[0];
  EXPECT_EQ(read(winner_ / found[0]), late("one")) << "unchanged, with its trace fields";
  EXPECT_EQ(about(found[0]).st_mtim.tv_sec, 1'700'000'000);
}

TEST_F(MaildirCopy, NewStaysNew) {
  std::string path = copied(ann + "/new/1.a");
  EXPECT_TRUE(path.starts_with(ann + "/new/"));
  EXPECT_EQ(path.find(":2,"), path.npos);
}

TEST_F(MaildirCopy, AFolderIsMadeAsDovecotHasIt) {
  winner_.put(ann + "/subscriptions", "V\t2\n\nSent\nOld");
  loser_.make_maildir(ann + "/.Lists.Dev");
  std::string path = copied(ann + "/.Lists.Dev/cur/1.a:2,S");
  EXPECT_TRUE(path.starts_with(ann + "/.Lists.Dev/cur/")) << path;
  EXPECT_EQ(read(winner_ / (ann + "/.Lists.Dev/maildirfolder")), "");
  EXPECT_EQ(read(winner_ / (ann + "/subscriptions")), "V\t2\n\nSent\nOld\nLists\tDev\n");
  for (const char* box : {"cur", "new", "tmp"})
    EXPECT_TRUE(fs::is_directory(winner_ / (ann + "/.Lists.Dev/" + box)));
}

TEST_F(MaildirCopy, SubscriptionsOfTheOldKind) {
  winner_.put(ann + "/subscriptions", "Sent\n");
  loser_.make_maildir(ann + "/.Lists.Dev");
  copied(ann + "/.Lists.Dev/new/1.a");
  EXPECT_EQ(read(winner_ / (ann + "/subscriptions")), "Sent\nLists.Dev\n");
  EXPECT_FALSE(fs::exists(winner_ / (ann + "/subscriptions.lock")));
}

struct StaleLock : MaildirCopy, testing::WithParamInterface<int> {};

TEST_P(StaleLock, IsRemoved) {
  winner_.put(ann + "/subscriptions", "Sent\n");
  winner_.put(ann + "/subscriptions.lock", "half");
  fs::last_write_time(winner_ / (ann + "/subscriptions.lock"),
                      fs::file_time_type::clock::now() - std::chrono::minutes(GetParam()));
  loser_.make_maildir(ann + "/.Dev");
  copied(ann + "/.Dev/new/1.a");
  EXPECT_EQ(read(winner_ / (ann + "/subscriptions")), "Sent\nDev\n");
  EXPECT_FALSE(fs::exists(winner_ / (ann + "/subscriptions.lock")));
}

// The clock may have been set back since.
INSTANTIATE_TEST_SUITE_P(MaildirCopy, StaleLock, testing::Values(2, -2));

TEST_F(MaildirCopy, SubscriptionsThatDovecotHasLockedAreLeft) {
  winner_.put(ann + "/subscriptions.lock", "");
  loser_.make_maildir(ann + "/.Dev");
  loser_.put(ann + "/.Dev/new/1.a", late("one"));
  extract();
  EXPECT_NE(detail(run()).find("the folder was made, and is not subscribed to"), std::string::npos);
  EXPECT_EQ(winner_.find("written after the parting").size(), 1u);
}

TEST_F(MaildirCopy, AFolderThatSomebodyElseMakesMeanwhile) {
  loser_.make_maildir(ann + "/.Dev");
  loser_.put(ann + "/.Dev/new/1.a", late("one"));
  extract();
  FaultOps ops;
  ops.before_name = [&](const std::string& name) {
    if (name == ".Dev") winner_.make_maildir(ann + "/.Dev");
  };
  DeliverReport report = run(nullptr, {}, &ops);
  EXPECT_EQ(report.count(Fate::delivered), 1u) << detail(report);
  EXPECT_EQ(winner_.find("written after the parting").size(), 1u);
  EXPECT_FALSE(fs::exists(winner_ / (ann + "/twinloft-salvage.folder")));
}

TEST_F(MaildirCopy, AllOfItIsTheMaildirOwners) {
  ASSERT_EQ(::geteuid(), 0u) << "this test changes file owners: run it as root";
  ASSERT_EQ(::chown((winner_ / ann).c_str(), 12345, 23456), 0);
  ASSERT_EQ(::chmod((winner_ / ann).c_str(), 0750), 0);
  loser_.make_maildir(ann + "/.Dev");
  std::string path = copied(ann + "/.Dev/new/1.a");
  for (auto [name, mode] : {std::pair{path, 0640u},
                            {ann + "/.Dev", 0750u},
                            {ann + "/.Dev/tmp", 0750u},
                            {ann + "/.Dev/maildirfolder", 0640u},
                            {ann + "/subscriptions", 0640u}}) {
    EXPECT_EQ(about(name).st_uid, 12345u) << name;
    EXPECT_EQ(about(name).st_gid, 23456u) << name;
    EXPECT_EQ(about(name).st_mode & 07777, mode) << name;
  }
}

TEST_F(MaildirCopy, NothingOfAnotherUserIsGivenAwayOrShown) {
  ASSERT_EQ(::geteuid(), 0u) << "this test changes file owners: run it as root";
  winner_.put("secret", "root's own\n");
  winner_.make_maildir(ann + "/twinloft-salvage.folder");
  fs::create_hard_link(winner_ / "secret", winner_ / (ann + "/twinloft-salvage.folder/maildirfolder"));
  fs::create_hard_link(winner_ / "secret", winner_ / (ann + "/subscriptions"));
  ASSERT_EQ(::chown((winner_ / ann).c_str(), 12345, 12345), 0);
  loser_.make_maildir(ann + "/.Dev");
  copied(ann + "/.Dev/new/1.a");
  EXPECT_EQ(about("secret").st_uid, 0u);
  EXPECT_EQ(read(winner_ / "secret"), "root's own\n");
  EXPECT_EQ(about(ann + "/subscriptions").st_nlink, 3u) << "the message is not copied";
}

TEST_F(MaildirCopy, AUserWhoIsGoneStaysGone) {
  fs::remove_all(winner_ / ann);
  EXPECT_NE(refusal(ann + "/new/1.a").find("the Maildir does not exist"), std::string::npos);
  EXPECT_FALSE(fs::exists(winner_ / ann));
}

TEST_F(MaildirCopy, LinksAreNotFollowed) {
  TemporaryDirectory elsewhere;
  for (const char* box : {"cur", "new", "tmp"}) fs::create_directory(elsewhere / box);
  auto link_to = [&](const std::string& name, const std::string& target) {
    fs::remove_all(winner_ / name);
    fs::create_directory_symlink(target, winner_ / name);
  };
  link_to(ann, elsewhere.path());
  refusal(ann + "/new/1.a");
  link_to("example.org", elsewhere.path());
  refusal(ann + "/new/1.a");
  fs::remove(winner_ / "example.org");
  for (const char* box : {"tmp", "new"}) {
    winner_.make_maildir(ann);
    link_to(ann + "/" + box, elsewhere / box);
    refusal(ann + "/new/1.a");
    fs::remove(winner_ / (ann + "/" + box));
  }
  winner_.make_maildir(ann);
  loser_.make_maildir(ann + "/.Dev");
  fs::remove(loser_ / (ann + "/new/1.a"));
  fs::create_directory_symlink(elsewhere.path(), winner_ / (ann + "/.Dev"));
  refusal(ann + "/.Dev/new/1.a");
  for (const char* box : {"cur", "new", "tmp"}) EXPECT_TRUE(fs::is_empty(elsewhere / box)) << box;
}

}  // namespace
}  // namespace twinloft::repl::salvage
