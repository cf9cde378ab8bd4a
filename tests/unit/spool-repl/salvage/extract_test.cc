// The messages that are extracted from the losing side's spool, and attacks by a hostile spool.
#include "twinloft/spool-repl/salvage/extract.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "on_its_way.h"
#include "spool.h"

namespace twinloft::repl::salvage {
namespace {

namespace fs = std::filesystem;
using testing::Test;

class Extract : public Test {
 protected:
  ExtractReport run() { return extract_from(loser_, bundle_); }
  // The messages of the bundle as "kind user folder box/name".
  std::vector<std::string> taken() {
    std::vector<std::string> out;
    Bundle bundle = open_bundle(bundle_);
    for (const Message& m : bundle.manifest().messages)
      out.push_back(fmt::format("{} {} {} {}/{}", m.kind == Kind::after ? "after" : "uncertain", m.user,
                                m.folder.empty() ? "INBOX" : m.folder, m.in_new ? "new" : "cur", m.name));
    return out;
  }
  std::string path(const std::string& name) { return loser_ / (ann + "/" + name); }

  Spool loser_;
  TemporaryDirectory beside_;
  std::string bundle_ = beside_ / "bundle";
};

TEST_F(Extract, MessagesOfAfterThePartingInEveryFolder) {
  loser_.make_maildir(ann + "/.Sent");
  loser_.make_maildir(ann + "/.Sent.2026");
  loser_.put(ann + "/new/1.a", late("one"));
  loser_.put(ann + "/cur/2.b:2,FS", late("two"));
  loser_.put(ann + "/.Sent/cur/3.c:2,S", late("three"));
  loser_.put(ann + "/.Sent.2026/new/4.d", late("four"));
  loser_.put(bob + "/new/1.a", late("five", "bob@example.org"));
  loser_.put(bob + "/tmp/9.z", late("never acknowledged", "bob@example.org"));
  loser_.put(bob + "/dovecot-uidlist", "3 V1\n");
  ExtractReport report = run();
  EXPECT_EQ(taken(), (std::vector<std::string>{
                         "after ann@example.org INBOX new/1.a", "after ann@example.org INBOX cur/2.b:2,FS",
                         "after ann@example.org .Sent cur/3.c:2,S",
                         "after ann@example.org .Sent.2026 new/4.d", "after bob@example.org INBOX new/1.a"}));
  EXPECT_EQ(report.maildirs, 2u);
  EXPECT_EQ(report.looked_at, 5u);
  EXPECT_EQ(report.after, 5u);
  EXPECT_EQ(report.uncertain, 0u);
  EXPECT_EQ(report.before, 0u);
  EXPECT_EQ(report.in_tmp, 1u);
  EXPECT_EQ(text_of(report.problems), "");
  EXPECT_TRUE(report.first_after);
}

TEST_F(Extract, TheBundleHasTheBytesAndWhereTheyCameFrom) {
  loser_.put(ann + "/new/1.a", late("one"));
  run();
  Bundle bundle = open_bundle(bundle_);
  EXPECT_EQ(bundle.manifest().volume.text(), volume_text);
  EXPECT_EQ(bundle.manifest().parting, options_for("").parting);
  EXPECT_EQ(bundle.manifest().layouts, std::vector<std::string>{"%d/%n/Maildir"});
  ASSERT_EQ(bundle.manifest().messages.size(), 1u);
  const Message& m = bundle.manifest().messages[0];
  EXPECT_EQ(m.maildir, ann);
  EXPECT_EQ(read(fmt::format("{}/messages/{}", bundle_, m.number)), late("one"));
  EXPECT_TRUE(bundle.verify(m));
  struct stat about{};
  ASSERT_EQ(::stat(path("new/1.a").c_str(), &about), 0);
  EXPECT_EQ(m.modified.seconds, about.st_mtim.tv_sec);
  EXPECT_EQ(m.changed.ns, static_cast<std::uint32_t>(about.st_ctim.tv_nsec));
  ASSERT_EQ(::stat(bundle_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u) << "no other user may read mail";
}

// Tests the rule alone, because a file's birth time cannot be set.
TEST(OnItsWay, WrittenShortlyBeforeTheNewestAndRenamedAfterIt) {
  constexpr std::int64_t newest = 1'000'000;
  auto may = [&](std::int64_t born, std::int64_t changed) {
    return may_have_been_on_its_way({{}, {newest + changed, 0}, {newest + born, 0}}, newest,
                                    std::chrono::seconds(300), std::chrono::seconds(30));
  };
  EXPECT_TRUE(may(0, 0)) << "the newest itself";
  EXPECT_TRUE(may(-4, 2));
  EXPECT_TRUE(may(-300, 0));
  EXPECT_FALSE(may(-301, 2)) << "a rename never takes that long";
  EXPECT_TRUE(may(-60, -30)) << "its directory may have been synced when the newest was born";
  EXPECT_FALSE(may(-60, -31)) << "renamed while later ones were still to come";
  EXPECT_EQ(ExtractOptions().slack, std::chrono::seconds(30));
}

TEST(OnItsWay, TheNewestOfBeforeTheParting) {
  EXPECT_EQ(newest_birth({100, 499, 300}, 500), 499);
  EXPECT_EQ(newest_birth({100, 499, 9000}, 500), 499) << "created later from old blocks";
  EXPECT_EQ(newest_birth({100, 499, 300}, std::nullopt), 499);
  EXPECT_EQ(newest_birth({600, 700}, 500), 700) << "the clock was set";
  EXPECT_EQ(newest_birth({}, 500), std::nullopt);
}

TEST(OnItsWay, OneMaildirDoesNotSayWhenTheHistoriesParted) {
  using Witnesses = std::vector<Witness>;
  EXPECT_EQ(first_credible_change(Witnesses{{499, 700}, {300, 500}, {100, {}}}), 500);
  EXPECT_EQ(first_credible_change(Witnesses{{9000, 700}, {300, 500}, {100, {}}}), 500)
      << "created later from old blocks";
  EXPECT_EQ(first_credible_change(Witnesses{{499, 700}, {300, 10}, {100, 500}}), 500)
      << "an old message whose blocks were written again";
  EXPECT_EQ(first_credible_change(Witnesses{{499, 10}, {300, {}}, {100, {}}}), std::nullopt)
      << "the only message, and older than the others";
  EXPECT_EQ(first_credible_change(Witnesses{{499, 10}}), 10) << "unknown: too many rather than too few";
  EXPECT_EQ(first_credible_change(Witnesses{{{}, 500}}), 500);
  EXPECT_EQ(first_credible_change(Witnesses{{499, {}}}), std::nullopt);
  EXPECT_EQ(first_credible_change({}), std::nullopt);
}

TEST_F(Extract, WhatMayHaveBeenOnItsWayIsTakenFromEveryMaildir) {
  loser_.put(ann + "/new/1.a", message("to both"));
  fs::create_hard_link(path("new/1.a"), loser_ / (bob + "/new/1.a"));
  run();
  EXPECT_EQ(taken(), (std::vector<std::string>{"uncertain ann@example.org INBOX new/1.a",
                                               "uncertain bob@example.org INBOX new/1.a"}));
}

TEST_F(Extract, AnEmptyFileHidesNothing) {
  loser_.put(ann + "/new/1.a", message("the newest"));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  loser_.put(bob + "/new/2.empty", "");
  run();
  auto found = taken();
  EXPECT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], "uncertain ann@example.org INBOX new/1.a");
}

TEST_F(Extract, WhatMayHaveBeenOnItsWayIsTakenAndMarked) {
  loser_.put(ann + "/new/1.a", message("long acknowledged"));
  std::this_thread::sleep_for(std::chrono::seconds(3));  // so that the times differ by more than the slack
  loser_.put(bob + "/new/2.b", message("the newest"));
  loser_.put(bob + "/new/3.c", late("the first afterwards"));
  loser_.put(bob + "/tmp/4.d", message("in tmp"));
  ExtractOptions options = options_for(bundle_);
  options.slack = std::chrono::seconds(1);
  auto report = extract(loser_.open().get(), options, written_after, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(taken(), (std::vector<std::string>{"after bob@example.org INBOX new/3.c",
                                               "uncertain bob@example.org INBOX new/2.b"}));
  EXPECT_EQ(report->before, 1u);
  EXPECT_EQ(report->uncertain, 1u);
}

TEST_F(Extract, NothingOfASymbolicLinkIsTaken) {
  write(beside_ / "secret/new/1.x", late("elsewhere"));
  fs::create_directories(beside_ / "secret/cur");
  fs::create_directory_symlink(beside_ / "secret", loser_ / "example.org/link");
  fs::create_directories(loser_ / "example.org/carl");
  fs::create_directory_symlink(beside_ / "secret", loser_ / "example.org/carl/Maildir");
  fs::create_directory_symlink(beside_ / "secret", path(".Linked"));
  fs::create_symlink(beside_ / "secret/new/1.x", path("new/2.y"));
  fs::remove(loser_ / (bob + "/new"));
  fs::create_directory_symlink(beside_ / "secret/new", loser_ / (bob + "/new"));
  loser_.put(ann + "/new/1.good", late("good"));
  ExtractReport report = run();
  EXPECT_EQ(taken(), std::vector<std::string>{"after ann@example.org INBOX new/1.good"});
  std::string problems = text_of(report.problems);
  for (const char* named : {"example.org/link: a symbolic link", "example.org/carl/Maildir: a symbolic link",
                            ".Linked: a symbolic link", "new/2.y: not taken: 2.y: a symbolic link",
                            "bob/Maildir: new/ or cur/ is missing, or is not a directory"})
    EXPECT_NE(problems.find(named), problems.npos) << named << " in\n" << problems;
}

TEST_F(Extract, WhatIsNoMessageIsNamedAndHarmsNothing) {
  ASSERT_EQ(::mkfifo(path("new/fifo").c_str(), 0600), 0);
  fs::create_directories(path("new/directory"));
  loser_.put(ann + "/new/.hidden", late("hidden"));
  loser_.put(ann + "/cur/odd \n\x80:2,S", late("odd"));
  {
    Fd huge(::open(path("new/huge").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(write_all(huge.get(), as_bytes("written after the parting")));
    ASSERT_EQ(::ftruncate(huge.get(), off_t{1} << 40), 0);
  }
  {
    Fd sparse(::open(path("new/sparse").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(write_all(sparse.get(), as_bytes("written after the parting")));
    ASSERT_EQ(::ftruncate(sparse.get(), 512 << 20), 0);
  }
  ExtractReport report = run();
  EXPECT_EQ(taken(), std::vector<std::string>{"after ann@example.org INBOX cur/odd \n\x80:2,S"});
  std::string problems = text_of(report.problems);
  for (const char* named :
       {"new/fifo: not taken: fifo: not a plain file",
        "new/directory: not taken: directory: not a plain file", "new/huge: 1099511627776 bytes, more than",
        "new/sparse: 536870912 bytes, of which only"})
    EXPECT_NE(problems.find(named), problems.npos) << named << " in\n" << problems;
  EXPECT_EQ(open_bundle(bundle_).manifest().problems, report.problems);
}

TEST_F(Extract, AFileThatCanNotBeJudgedIsNamedAndTheRestIsTaken) {
  loser_.put(ann + "/new/1.bad", late("bad"));
  loser_.put(ann + "/new/2.good", late("good"));
  int asked = 0;
  auto report = extract(
      loser_.open().get(), options_for(bundle_),
      [&](int fd) -> Result<bool> { return ++asked == 1 ? fail_errno(EIO, "FIEMAP") : written_after(fd); },
      {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(taken(), std::vector<std::string>{"after ann@example.org INBOX new/2.good"});
  EXPECT_NE(text_of(report->problems).find("new/1.bad: not taken: FIEMAP: Input/output error"),
            std::string::npos);
}

TEST_F(Extract, AFailureBelowTheFileSystemStaysWithTheBundle) {
  loser_.put(ann + "/new/1.a", late("one"));
  ExtractOptions options = options_for(bundle_);
  options.device_failure = [] { return std::optional(Error{Errc::io, "reading block 7", 0}); };
  auto report = extract(loser_.open().get(), options, written_after, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(text_of(report->problems),
            ": a request to the image failed, mail may be missing: reading block 7\n");
  EXPECT_EQ(open_bundle(bundle_).manifest().problems, report->problems) << "deliver reports it";
}

TEST_F(Extract, AnotherUsersFileInAMaildirIsNotTaken) {
  ASSERT_EQ(::geteuid(), 0u) << "this test changes file owners: run it as root";
  loser_.put(ann + "/new/1.link", late("somebody else's secret"));
  ASSERT_EQ(::chown(path("new/1.link").c_str(), 12345, 12345), 0);
  ExtractReport report = run();
  EXPECT_EQ(report.after, 0u);
  EXPECT_NE(text_of(report.problems).find("new/1.link: belongs to user 12345"), std::string::npos)
      << text_of(report.problems);
  fs::remove_all(bundle_);
  ExtractOptions options = options_for(bundle_);
  options.foreign_owners = true;
  auto again = extract(loser_.open().get(), options, written_after, {});
  ASSERT_TRUE(again);
  EXPECT_EQ(again->after, 1u);
}

TEST_F(Extract, MaildirsThatFitNoLayoutAreNamed) {
  loser_.make_maildir("elsewhere/dora");
  loser_.make_maildir("elsewhere/dora/.Folder");
  loser_.put("elsewhere/dora/new/1.a", late("lost"));
  ExtractReport report = run();
  EXPECT_EQ(text_of(report.problems),
            "elsewhere/dora: a Maildir without a matching layout: its mail is not taken; add its layout\n");
  fs::remove_all(bundle_);
  ExtractOptions options = options_for(bundle_);
  options.layouts = {"elsewhere/%n", "%d/%n/Maildir"};
  auto again = extract(loser_.open().get(), options, written_after, {});
  ASSERT_TRUE(again);
  EXPECT_EQ(taken(), std::vector<std::string>{"after dora INBOX new/1.a"});
  fs::remove_all(bundle_);
  options.layouts = {"%u/mail"};
  again = extract(loser_.open().get(), options, written_after, {});
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("no Maildir matches the layout %u/mail"), std::string::npos)
      << again.error().message;
  EXPECT_FALSE(fs::exists(bundle_));
}

TEST_F(Extract, OneUsersProblemsHideNobodyElses) {
  for (int i = 0; i < 1005; ++i) fs::create_symlink("x", path(fmt::format("new/{}", i)));
  fs::create_symlink("x", loser_ / (bob + "/new/of-bob"));
  std::string problems = text_of(run().problems);
  EXPECT_EQ(std::count(problems.begin(), problems.end(), '\n'), 1002);
  EXPECT_NE(problems.find("of-bob: not taken"), problems.npos);
  EXPECT_NE(problems.find("example.org/ann: and 5 more\n"), problems.npos);
}

TEST_F(Extract, HardLinksAreTakenOnceFromEachMaildir) {
  loser_.put(ann + "/new/1.a", late("one"));
  loser_.make_maildir(ann + "/.Copy");
  fs::create_hard_link(path("new/1.a"), path(".Copy/cur/1.a:2,S"));
  for (int i = 0; i < 3; ++i) fs::create_hard_link(path("new/1.a"), path(fmt::format("new/2.{}", i)));
  fs::create_hard_link(path("new/1.a"), loser_ / (bob + "/new/1.a"));
  ExtractReport report = run();
  EXPECT_EQ(report.links, 4u);
  EXPECT_EQ(taken(), (std::vector<std::string>{"after ann@example.org INBOX new/1.a",
                                               "after bob@example.org INBOX new/1.a"}));
  auto messages = open_bundle(bundle_).manifest().messages;
  EXPECT_EQ(messages[0].content, messages[1].content);
}

TEST_F(Extract, ProgressCountsUp) {
  loser_.put(ann + "/new/1.a", late("one"));
  loser_.put(bob + "/new/1.a", late("two", "bob@example.org"));
  ExtractProgress last;
  auto report = extract(loser_.open().get(), options_for(bundle_), written_after,
                        [&](const ExtractProgress& p) {
                          EXPECT_GE(p.taken, last.taken);
                          EXPECT_LE(p.maildirs_done, p.maildirs_total);
                          last = p;
                        });
  ASSERT_TRUE(report);
  EXPECT_EQ(last.maildirs_done, 2u);
  EXPECT_EQ(last.maildirs_total, 2u);
  EXPECT_EQ(last.taken, 2u);
  EXPECT_EQ(last.bytes, report->bytes);
}

}  // namespace
}  // namespace twinloft::repl::salvage
