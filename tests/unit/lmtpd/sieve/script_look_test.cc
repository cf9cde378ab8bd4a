// Who has a script, by what lies in the home. A place that cannot be reached is never "no script".
#include "twinloft/lmtpd/sieve/script_look.h"

#include "../support/fixture.h"
#include "../support/recording_ops.h"

namespace twinloft::lmtpd {
namespace {

// The calls of a look.
class CountingOps final : public test::RecordingOps {
 public:
  Result<FileAbout> about(int dir, const std::string& name) override {
    ++looks;
    if (denied) return fail_errno(EACCES, "{}", name);
    return RecordingOps::about(dir, name);
  }
  int looks = 0;
  bool denied = false;
};

class SieveLook : public test::DirTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(path("spool/ann"));
    std::filesystem::create_directories(path("elsewhere/ann"));
    spool_ = Spool::create({path("spool"), std::nullopt}, ops_).value();
    user_.name = "ann@example.org";
    user_.home = path("spool/ann");
  }
  static ScriptRule by(std::initializer_list<std::string> texts) {
    ByFile rule;
    for (const std::string& text : texts) {
      rule.any_of.push_back(ScriptPath::parse(text, true).value());
      rule.texts.push_back(text);
    }
    return rule;
  }
  std::string look(const ScriptRule& rule = by({"~/.dovecot.sieve"})) {
    auto handle = spool_->open();
    EXPECT_TRUE(handle.has_value());
    ops_.looks = 0;
    auto found = has_script(rule, user_, *handle, *spool_, ops_);
    if (!found) return fmt::format("error {}", found.error().sys);
    return *found ? "yes" : "no";
  }
  void write(const std::string& name) { std::ofstream(path(name)) << "keep;\n"; }

  CountingOps ops_;
  std::unique_ptr<Spool> spool_;
  User user_;
};

TEST_F(SieveLook, OneLookForEachUser) {
  EXPECT_EQ(look(), "no");
  EXPECT_EQ(ops_.looks, 1);
  write("spool/ann/.dovecot.sieve");
  EXPECT_EQ(look(), "yes");
  EXPECT_EQ(ops_.looks, 1);
  std::filesystem::remove(path("spool/ann/.dovecot.sieve"));
  EXPECT_EQ(look(), "no");
}

TEST_F(SieveLook, NoLookWhereTheRuleDecides) {
  EXPECT_EQ(look(AllUsers{"x"}), "yes");
  EXPECT_EQ(look(NoUser{"x"}), "no");
  EXPECT_EQ(ops_.looks, 0);
}

// Dovecot decides what a link means that leads nowhere, or out of the home.
TEST_F(SieveLook, ALinkCountsWhereverItLeads) {
  for (const char* to :
       {"sieve/main.sieve", "nowhere", "/nowhere", "/etc/passwd", "../../elsewhere/ann", ".dovecot.sieve"}) {
    std::filesystem::create_symlink(to, path("spool/ann/.dovecot.sieve"));
    EXPECT_EQ(look(), "yes") << to;
    EXPECT_EQ(ops_.looks, 1) << to;
    std::filesystem::remove(path("spool/ann/.dovecot.sieve"));
  }
}

TEST_F(SieveLook, ADirectoryIsNoScript) {
  std::filesystem::create_directories(path("spool/ann/sieve"));
  EXPECT_EQ(look(by({"~/sieve", "~/.dovecot.sieve"})), "no");
  write("spool/ann/.dovecot.sieve");
  EXPECT_EQ(look(by({"~/sieve", "~/.dovecot.sieve"})), "yes");
  std::filesystem::remove_all(path("spool/ann/sieve"));
  write("spool/ann/sieve");
  EXPECT_EQ(look(by({"~/sieve", "~/.dovecot.sieve"})), "yes");
  EXPECT_EQ(ops_.looks, 1);
}

// The spool's marker was read, so a home that is missing there has no script.
TEST_F(SieveLook, AHomeThatIsMissingInTheSpoolHasNoScript) {
  user_.home = path("spool/bob");
  EXPECT_EQ(look(), "no");
  EXPECT_EQ(ops_.looks, 1);
}

// A file system that is not mounted looks the same as a home without a script.
TEST_F(SieveLook, AHomeThatIsMissingElsewhereIsAnError) {
  user_.home = path("elsewhere/ann");
  EXPECT_EQ(look(), "no");
  write("elsewhere/ann/.dovecot.sieve");
  EXPECT_EQ(look(), "yes");
  user_.home = path("elsewhere/bob");
  EXPECT_EQ(look(), "error 0");
  EXPECT_EQ(look(by({path("elsewhere") + "/%u.sieve"})), "no");
  EXPECT_EQ(look(by({path("not-mounted") + "/%u.sieve"})), "error 0");
}

// The home, or the constant part of the path, may be an empty place to mount at. What lies below would show a
// mounted file system, and Dovecot decides without it.
TEST_F(SieveLook, WithoutTheFilesDirectoryDovecotDecides) {
  user_.home = path("elsewhere/ann");
  const std::string by_domain = path("elsewhere") + "/sieve/%d/%n.sieve";
  EXPECT_EQ(look(by({by_domain})), "error 0");
  std::filesystem::create_directories(path("elsewhere/sieve"));
  EXPECT_EQ(look(by({by_domain})), "yes");
  std::filesystem::create_directories(path("elsewhere/sieve/example.org"));
  EXPECT_EQ(look(by({by_domain})), "no");
  EXPECT_EQ(look(by({"~/sieve/active"})), "yes");
  std::filesystem::create_directories(path("elsewhere/ann/sieve"));
  EXPECT_EQ(look(by({"~/sieve/active"})), "no");
  user_.home = path("spool/ann");
  EXPECT_EQ(look(by({"~/sieve/active"})), "no") << "the spool's marker was read";
}

TEST_F(SieveLook, AnythingButNoSuchFileIsAnError) {
  ASSERT_TRUE(test::is_root()) << "tests/run runs as root: only root closes a home to lmtpd";
  ::chmod(path("spool/ann").c_str(), 0700);
  become_mail_user();
  EXPECT_EQ(look(), fmt::format("error {}", EACCES));
  become_root();
  user_.home = path("spool/file");
  write("spool/file");
  EXPECT_EQ(look(), fmt::format("error {}", ENOTDIR));
  user_.home = path("spool/loop");
  std::filesystem::create_symlink("loop", path("spool/loop"));
  EXPECT_EQ(look(), fmt::format("error {}", ELOOP));
}

// ProtectHome=yes of lmtpd.service.
TEST_F(SieveLook, AHomeThatTheUnitHidesIsNamed) {
  ops_.denied = true;
  auto handle = spool_->open();
  ASSERT_TRUE(handle.has_value());
  for (auto [home, hidden] : {std::pair("/home/ann", true), {"/srv/homes/ann", false}}) {
    user_.home = home;
    auto found = has_script(by({"~/.dovecot.sieve"}), user_, *handle, *spool_, ops_);
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().sys, EACCES);
    EXPECT_EQ(found.error().message.find("lmtpd-homes.conf") != std::string::npos, hidden)
        << found.error().message;
  }
}

TEST_F(SieveLook, ARowWithFieldsAboutSieveCounts) {
  user_.sieve_in_row = true;
  EXPECT_EQ(look(), "yes");
  EXPECT_EQ(ops_.looks, 0);
  EXPECT_EQ(look(NoUser{"x"}), "no");
}

// Such a name would lead to another directory. Dovecot has rules for names, and decides.
TEST_F(SieveLook, ANameThatIsNoPartOfAPathCounts) {
  user_.name = "../ann";
  EXPECT_EQ(look(by({path("elsewhere") + "/%u"})), "yes");
  EXPECT_EQ(ops_.looks, 0);
}

}  // namespace
}  // namespace twinloft::lmtpd
