// Users in a text file: Dovecot's format, changes while the file is in use, and failures that must not count
// as "no such user".
#include "twinloft/lmtpd/userdb/passwd_file_db.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "../../support/temporary_directory.h"
#include "sources.h"

namespace twinloft::lmtpd {
namespace {

class PasswdFileTest : public testing::Test {
 protected:
  PasswdFileTest() {
    config_.path = dir_ / "users";
    config_.defaults.uid = config_.defaults.gid = 5000;
    config_.defaults.home = "/srv/mail/%domain%/%user%";
    write("ann@example.org:{PLAIN}secret:5001:5002::/home/ann::userdb_mail=maildir:~/Maildir:INDEX=MEMORY\n");
  }
  // Replaces the file. The clock passes the time in which the file may be incomplete.
  void write(const std::string& text) {
    std::ofstream(config_.path + ".new") << text;
    std::filesystem::rename(config_.path + ".new", config_.path);
    pass();
  }
  void pass() {
    struct stat about{};
    ASSERT_EQ(::stat(config_.path.c_str(), &about), 0);
    clock_.of_day.seconds = about.st_mtim.tv_sec + 10;
    clock_.at = clock_.at + std::chrono::seconds(10);
  }
  std::unique_ptr<UserSource> open() {
    auto db = open_passwd_file(config_, clock_);
    EXPECT_TRUE(db.has_value()) << db.error().message;
    return std::move(*db);
  }
  std::string error_of(const std::string& line) {
    write(line + "\nother@example.org\n");
    auto db = open();
    EXPECT_TRUE(user_of(db->find({"other", "example.org"}))) << "the other users exist";
    auto found = db->find({"ann", "example.org"});
    return found ? "" : found.error().message;
  }

  TemporaryDirectory dir_;
  PasswdFileConfig config_;
  ManualClock clock_;
};

TEST_F(PasswdFileTest, ReadsDovecotsFormat) {
  write(R"(# comment:x:0:0
ann@example.org:{PLAIN}secret:5001:5002:Ann, A.:/home/ann:/bin/sh:allow_nets=127.0.0.0/8)"
        R"( userdb_mail=maildir:~/Maildir:LAYOUT=Maildir++:INBOX=~//Maildir/ userdb_quota_rule=*:storage=1M

bob@example.org:secret
bob:x:6000:6001:::
eve@example.org::::::: userdb_mail=maildir:%h/m/%d/%n  userdb_home=/home/eve userdb_uid=7)"
        R"( twinloft_agent=lda twinloft_state=deferred twinloft_detail_folders=existing)"
        R"( userdb_quota_storage_size=5M userdb_quota_message_count=6
info@example.org:::::::userdb_twinloft_alias=ann@example.org
far@example.org:::::::twinloft_next_hop=store1
odd@example.org:::::::twinloft_detail_folders=perhaps
worse@example.org:::::::twinloft_next_hop=store/1
:nobody:1:1::/::
)");
  auto db = open();
  auto ann = user_of(db->find({"ann", "example.org"}));
  ASSERT_TRUE(ann);
  EXPECT_EQ(ann->name + " " + ann->home + " " + ann->maildir, "ann@example.org /home/ann /home/ann/Maildir");
  EXPECT_TRUE(ann->uid == 5001 && ann->gid == 5002);
  EXPECT_EQ(ann->quota, (QuotaLimit{1u << 20, 0}));
  EXPECT_EQ(user_of(db->find({"far", "example.org"}))->next_hop, "store1");
  EXPECT_NE(db->find({"odd", "example.org"}).error().message.find("detail_folders"), std::string::npos);
  EXPECT_NE(db->find({"worse", "example.org"}).error().message.find("next hop"), std::string::npos);
  auto bob = user_of(db->find({"bob", "example.org"}));
  ASSERT_TRUE(bob);
  EXPECT_EQ(bob->name + " " + bob->home + " " + bob->maildir, "bob@example.org /srv/mail/example.org/bob ");
  EXPECT_EQ(bob->uid, 5000u);
  auto eve = user_of(db->find({"eve", "example.org"}));
  ASSERT_TRUE(eve);
  EXPECT_EQ(eve->detail_folders, FoldersByDetail::existing);
  EXPECT_EQ(eve->home + " " + eve->maildir + " " + eve->agent, "/home/eve /home/eve/m/example.org/eve lda");
  EXPECT_TRUE(eve->uid == 7 && eve->gid == 5000 && eve->state == UserState::deferred);
  EXPECT_EQ(eve->quota, (QuotaLimit{5u << 20, 6}));
  auto info = db->find({"info", "example.org"});
  ASSERT_TRUE(info && *info);
  EXPECT_EQ(std::get<Alias>(**info).address, "ann@example.org");
  for (const char* nobody : {"# comment", "", "carl", "ann@example.org"})
    EXPECT_FALSE(user_of(db->find({nobody, "example.org"}))) << nobody;
}

// Dovecot may run a script from another place for such a user.
TEST_F(PasswdFileTest, ALineWithFieldsAboutSieveIsMarked) {
  write(
      "ann@example.org:::::/home/ann::userdb_sieve=file:~/other userdb_mail=maildir:~/Maildir\n"
      "bob@example.org:::::/home/bob::userdb_sieve_before=/etc/x.sieve\n"
      "eve@example.org:::::/home/eve::userdb_mail=maildir:~/Maildir\n");
  auto db = open();
  for (auto [name, marked] : {std::pair("ann", true), {"bob", true}, {"eve", false}}) {
    auto user = user_of(db->find({name, "example.org"}));
    ASSERT_TRUE(user) << name;
    EXPECT_EQ(user->sieve_in_row, marked) << name;
  }
}

TEST_F(PasswdFileTest, PathsHaveOneForm) {
  auto paths_of = [&](const std::string& fields) {
    write("ann@example.org:x:5:5::" + fields + "\n");
    auto ann = open()->find({"ann", "example.org"});
    return ann ? user_of(ann)->home + " " + user_of(ann)->maildir : ann.error().message;
  };
  config_.defaults.maildir = "%home%/Maildir";
  EXPECT_EQ(paths_of("/srv//ann/::"), "/srv/ann /srv/ann/Maildir");
  EXPECT_EQ(paths_of("/srv/ann/::userdb_mail=maildir:~/Maildir"), "/srv/ann /srv/ann/Maildir");
  EXPECT_EQ(paths_of("/srv/ann/::userdb_mail=maildir:%h"), "/srv/ann /srv/ann");
  EXPECT_EQ(paths_of("/srv/ann/::userdb_mail=maildir:~/"), "/srv/ann /srv/ann");
  EXPECT_EQ(paths_of("/::userdb_mail=maildir:~//m/"), "/ /m");
  EXPECT_EQ(paths_of("/srv/./ann/.::userdb_mail=Maildir:~/./m"), "/srv/ann /srv/ann/m")
      << "as Dovecot treats them";
  EXPECT_EQ(paths_of("/srv/ann::userdb_home=/srv/%d/%n/ userdb_mail=maildir:~/m"),
            "/srv/example.org/ann /srv/example.org/ann/m");
  config_.defaults.maildir = "~";
  EXPECT_EQ(paths_of("/srv/ann/::"), "/srv/ann /srv/ann");
}

// Dovecot 2.3 does this: it expands variables in extra fields, but uses the line's own home unchanged.
TEST_F(PasswdFileTest, AHomeAmongTheExtraFieldsHasVariables) {
  config_.defaults.maildir = "~/Maildir";
  auto home_of = [&](const std::string& fields) {
    write("ann@example.org:x:5:5::" + fields + "\n");
    auto ann = open()->find({"ann", "example.org"});
    return ann ? user_of(ann)->home : "error: " + ann.error().message;
  };
  EXPECT_EQ(home_of("/h::userdb_home=/srv/%d//%n/"), "/srv/example.org/ann");
  EXPECT_EQ(home_of("::userdb_home=/srv/%{domain}/%Ln"), "/srv/example.org/ann");
  EXPECT_EQ(home_of("/srv/%d/%n::"), "/srv/%d/%n");
  for (const char* bad : {"/srv/%1n", "%h/x", "~/x", "~", "/srv/%x"})
    EXPECT_NE(home_of(std::string("/h::userdb_home=") + bad)
                  .find("error: " + config_.path + ":1: user ann@example.org: userdb_home="),
              std::string::npos)
        << bad;
}

// Variables have the user name as the file writes it.
TEST_F(PasswdFileTest, VariablesAreOfTheNameAsItIsWritten) {
  config_.defaults.maildir = "~/Maildir";
  config_.defaults.home = "/srv/%domain%/%user%";
  auto paths_of = [&](const std::string& name) {
    write(name + ":x:5:5::::userdb_mail=maildir:/m/%d/%n\n");
    auto ann = user_of(open()->find({"ann", "xn--bcher-kva.example"}));
    return ann ? ann->home + " " + ann->maildir : "nobody";
  };
  EXPECT_EQ(paths_of("ann@b\u00fccher.example"), "/srv/b\u00fccher.example/ann /m/b\u00fccher.example/ann");
  EXPECT_EQ(paths_of("Ann@B\u00dcCHER.Example."), "/srv/b\u00fccher.example/ann /m/b\u00fccher.example/ann");
  EXPECT_EQ(paths_of("ann@xn--bcher-kva.example"),
            "/srv/xn--bcher-kva.example/ann /m/xn--bcher-kva.example/ann");
  config_.key = "%user%";
  EXPECT_EQ(paths_of("ann"), "/srv/xn--bcher-kva.example/ann /m/xn--bcher-kva.example/ann");
}

// The place of the mail does not matter for a user on another server.
TEST_F(PasswdFileTest, WhereMailLiesIsOfNoInterestToWhoHandsItOn) {
  write(
      "ann@example.org:x:5:5::/h::twinloft_next_hop=store1 userdb_mail=mdbox:~/m userdb_chroot=/x\n"
      "bob@example.org:x:5:5::/h::userdb_mail=maildir:~/m:LAYOUT=fs twinloft_alias=ann@example.org\n"
      "carl@example.org:x:5:5::/h::userdb_mail=mdbox:~/m\n");
  auto db = open();
  auto ann = user_of(db->find({"ann", "example.org"}));
  ASSERT_TRUE(ann);
  EXPECT_EQ(ann->next_hop, "store1");
  auto bob = db->find({"bob", "example.org"});
  ASSERT_TRUE(bob && *bob);
  EXPECT_EQ(std::get<Alias>(**bob).address, "ann@example.org");
  EXPECT_FALSE(db->find({"carl", "example.org"}));
  config_.defaults.next_hop = "store2";
  auto carl = user_of(open()->find({"carl", "example.org"}));
  ASSERT_TRUE(carl);
  EXPECT_EQ(carl->next_hop, "store2");
}

TEST_F(PasswdFileTest, AnAccountsNameIsItsId) {
  write("ann@example.org:x:daemon:daemon::/srv/ann\n");
  auto ann = user_of(open()->find({"ann", "example.org"}));
  ASSERT_TRUE(ann);
  EXPECT_TRUE(ann->uid == 1 && ann->gid == 1);
}

TEST_F(PasswdFileTest, AnotherKey) {
  config_.key = "%user%";
  write("ann:x\n");
  config_.defaults.maildir = "%home%/Maildir";
  EXPECT_EQ(user_of(open()->find({"ann", "example.com"}))->maildir, "/srv/mail/example.com/ann/Maildir");
}

TEST_F(PasswdFileTest, AChangeIsSeen) {
  auto db = open();
  EXPECT_FALSE(user_of(db->find({"bob", "example.org"})));
  write("ann@example.org\nbob@example.org\n");
  EXPECT_TRUE(user_of(db->find({"bob", "example.org"})));
  EXPECT_EQ(user_of(db->find({"ann", "example.org"}))->uid, 5000u);
}

TEST_F(PasswdFileTest, WhatIsInMemoryIsAtHandForAMoment) {
  auto db = open();
  pass();
  EXPECT_FALSE(db->find_now({"ann", "example.org"}));
  EXPECT_TRUE(user_of(db->find({"ann", "example.org"})));
  EXPECT_TRUE(user_of(*db->find_now({"ann", "example.org"})));
  EXPECT_FALSE(user_of(*db->find_now({"bob", "example.org"})));
  clock_.at = clock_.at + std::chrono::seconds(1);
  EXPECT_FALSE(db->find_now({"ann", "example.org"}));
}

TEST_F(PasswdFileTest, AFileThatIsBeingWrittenHidesNobody) {
  auto db = open();
  std::ofstream(config_.path) << "";
  EXPECT_NE(db->find({"ann", "example.org"}).error().message.find("has no user"), std::string::npos);
  std::ofstream(config_.path) << "bob@example.org\n";
  struct stat about{};
  ASSERT_EQ(::stat(config_.path.c_str(), &about), 0);
  clock_.of_day.seconds = about.st_mtim.tv_sec + 1;
  auto ann = db->find({"ann", "example.org"});
  ASSERT_FALSE(ann);
  EXPECT_EQ(ann.error().code, Errc::conflict);
  EXPECT_TRUE(user_of(db->find({"bob", "example.org"}))) << "a present user is found";
  clock_.of_day.seconds += 1;
  EXPECT_FALSE(user_of(db->find({"ann", "example.org"})));
  clock_.of_day.seconds -= 1000;  // with a wrong clock, mail is not deferred without end
  EXPECT_FALSE(user_of(db->find({"ann", "example.org"})));
}

TEST_F(PasswdFileTest, AFileThatIsAwayIsAnError) {
  auto db = open();
  std::filesystem::rename(config_.path, config_.path + ".away");
  auto ann = db->find({"ann", "example.org"});
  ASSERT_FALSE(ann);
  EXPECT_NE(ann.error().code, Errc::invalid) << "the cache may answer";
  EXPECT_FALSE(open_passwd_file(config_, clock_));
  std::filesystem::rename(config_.path + ".away", config_.path);
  EXPECT_TRUE(user_of(db->find({"ann", "example.org"})));
}

TEST_F(PasswdFileTest, AWrongLineIsAnErrorForItsUser) {
  EXPECT_NE(error_of("ann@example.org:x:0:5::/h").find("/users:1: user ann@example.org: column \"uid\" is 0"),
            std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:five:5::/h")
                .find("\"uid\" is neither a number nor an existing account: \"five\""),
            std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::home").find("absolute"), std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::/h/../..").find(".."), std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::/h::userdb_mail=mdbox:~/m").find("expected maildir:PATH"),
            std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::/h::userdb_mail=maildir:%{home}/%s/m").find("known are"),
            std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::/h::userdb_mail=maildir:m").find("absolute"), std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::/h::userdb_mail=maildir:%").find("known are"),
            std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::/h::userdb_mail=maildir:~/m\tuserdb_nice=1").find("tab"),
            std::string::npos);
  EXPECT_NE(error_of("ann@example.org:x:5:5::/h::twinloft_state=gone").find("state"), std::string::npos);
  EXPECT_EQ(error_of("ann@example.org:x:5:5::/h"), "");
}

TEST_F(PasswdFileTest, NamesHaveOneForm) {
  write(
      "ann@b\u00fccher.example:x:7:7\nBob@Example.ORG.:x:8:8\nCARL@example.org:x:9:9\ncarl@example.org:x:10:"
      "10\nDave@example.org\ndAve@example.org\n");
  auto db = open();
  EXPECT_EQ(user_of(db->find({"ann", "xn--bcher-kva.example"}))->uid, 7u);
  EXPECT_EQ(user_of(db->find({"bob", "example.org"}))->uid, 8u);
  EXPECT_EQ(user_of(db->find({"carl", "example.org"}))->uid, 10u) << "the user that Dovecot finds";
  EXPECT_NE(db->find({"dave", "example.org"}).error().message.find("is also in line 6"), std::string::npos);
}

TEST_F(PasswdFileTest, EveryRowIsSeenInItsOrder) {
  write(
      "# none\nann@example.org:x:0:0\nbob\n\neve@b\u00fccher.example::5:5:::: userdb_new_thing=1\nodd@exa "
      "mple:x:7:7\n");
  std::string seen;
  ASSERT_TRUE(open()->each_row([&](const SeenRow& row) {
    seen += row.where.substr(row.where.rfind('/')) + (row.found ? " ok" : " refused");
    for (const std::string& name : row.not_known) seen += " " + name;
    seen += "\n";
  }));
  EXPECT_EQ(seen, "/users:2 refused\n/users:3 ok\n/users:5 ok userdb_new_thing\n/users:6 refused\n");
}

// Programs differ in the choice between two such lines.
TEST_F(PasswdFileTest, AUserWhoStandsThereTwiceIsAnError) {
  write("ann@example.org:x:7:7\r\nbob@example.org:x:7:7\r\nann@example.org:x:8:8\r\n");
  auto db = open();
  EXPECT_NE(db->find({"ann", "example.org"})
                .error()
                .message.find("/users:1: user ann@example.org: is also in line 3"),
            std::string::npos);
  EXPECT_EQ(user_of(db->find({"bob", "example.org"}))->uid, 7u);
}

// A line cut after "/home/ann2" could read "/home/ann".
TEST_F(PasswdFileTest, ALineWithoutItsEndIsNotUsed) {
  write("bob@example.org\nann@example.org:x:7:7::/home/ann");
  auto db = open();
  auto ann = db->find({"ann", "example.org"});
  ASSERT_FALSE(ann);
  EXPECT_EQ(ann.error().code, Errc::conflict);
  EXPECT_TRUE(user_of(db->find({"bob", "example.org"})));
}

}  // namespace
}  // namespace twinloft::lmtpd
