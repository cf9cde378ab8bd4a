// `lmtpd check-config` in its own directory. Tests that depend on the calling user need root.
#include "check_config.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../../support/loopback.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/process/privileges.h"

namespace twinloft::lmtpd {
namespace {

constexpr unsigned mail_uid = 61234;

class CheckConfigTest : public testing::Test {
 protected:
  CheckConfigTest() {
    const char* base = std::getenv("TMPDIR");
    dir_ = std::string(base && *base ? base : "/tmp") + "/twinloft-check-XXXXXX";
    if (!::mkdtemp(dir_.data())) std::abort();
    ::chmod(dir_.c_str(), 0755);
    std::filesystem::create_directory(dir_ + "/spool");
    std::filesystem::create_directory(dir_ + "/bodies");
    for (const char* name : {"/spool", "/bodies"})
      if (::getuid() == 0 && ::chown((dir_ + name).c_str(), mail_uid, mail_uid) != 0) std::abort();
  }
  ~CheckConfigTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  static bool is_root() { return ::getuid() == 0; }

  // users: the lines of the section [users]. rest: further sections.
  int check(const std::string& users, const std::string& rest = "") {
    return check(users, rest, is_root() ? "user = 61234\ngroup = 61234\n" : "", dir_ + "/spool");
  }
  int check(const std::string& users, const std::string& rest, const std::string& first,
            const std::string& spool) {
    std::ofstream(dir_ + "/lmtpd.toml")
        << first << "[[listen]]\naddress = \"127.0.0.1:2400\"\n[limits]\nbody_directory = \"" << dir_
        << "/bodies\"\n[spool]\npath = \"" << spool << "\"\nrequire_marker = false\n[users]\n"
        << users << "\n"
        << rest;
    std::ostringstream out, err;
    int code = check_config(dir_ + "/lmtpd.toml", out, err);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  std::string static_users(const std::string& more) {
    std::string accepted = more.find("users = ") == std::string::npos ? "accept_all = true\n" : "";
    return "driver = \"static\"\n" + accepted + "home = \"" + dir_ + "/spool/%user%\"\n" + more;
  }
  std::string maildir() { return "maildir = \"" + dir_ + "/spool/%user%/Maildir\"\n"; }
  bool says(const std::string& text) { return err_.find(dir_ + "/lmtpd.toml: " + text) != std::string::npos; }

  static std::string name_of_this_process() {
    char name[16] = {};
    (void)::prctl(PR_GET_NAME, name);
    return name;
  }

  std::string dir_, out_, err_;
};

TEST_F(CheckConfigTest, RowsOfAPasswdFileAreReviewed) {
  std::string spool = dir_ + "/spool", ids = is_root() ? "61234:61234" : "";
  std::ofstream(dir_ + "/users") << "ann@example.org:x:" << ids << "::" << spool << "/ann\n"
                                 << "bob@example.org:x:0:0::" << spool << "/bob\n"
                                 << "# none\n"
                                 << "eve@example.org:x:" << ids << "::" << spool
                                 << "/eve::userdb_mail=maildir:~/Maildir:LAYOUT=fs\n"
                                 << "far@example.org:x:" << ids << "::/elsewhere/far::userdb_new_thing=1\n";
  EXPECT_EQ(check("driver = \"passwd-file\"\npath = \"" + dir_ + "/users\"\nmaildir = \"%home%/Maildir\"\n"),
            0)
      << err_;
  for (const char* text :
       {"3 of 4 lines are refused, and mail to their users gets 451",
        "/users:2: user bob@example.org: column \"uid\" is 0",
        "/users:4: user eve@example.org: mail=", "LAYOUT=fs", "/users:5: maildir: every mail would get 451",
        "1 of 4 lines have unknown fields, which lmtpd ignores (userdb_new_thing)"})
    EXPECT_NE(err_.find(text), std::string::npos) << text << " in " << err_;
}

TEST_F(CheckConfigTest, AMaildirThatIsTheHomeGetsNoNewFolders) {
  const std::string create = "[maildir]\ndetail_folders = \"create\"\n";
  EXPECT_EQ(check(static_users("maildir = \"~\"\n"), create), 0) << err_;
  EXPECT_NE(err_.find("warning: maildir.detail_folders: no folders are created"), std::string::npos) << err_;
  EXPECT_EQ(check(static_users(maildir()), create), 0) << err_;
  EXPECT_EQ(err_.find("no folders are created"), std::string::npos) << err_;
}

TEST_F(CheckConfigTest, AGoodOneIsOk) {
  EXPECT_EQ(check(static_users(maildir())), 0) << err_;
  EXPECT_EQ(out_.substr(0, 3), "ok\n");
}

TEST_F(CheckConfigTest, StaticUsersOfTheBuiltInAgentNeedAMaildir) {
  EXPECT_EQ(check(static_users("")), 78);
  EXPECT_TRUE(says("users.maildir: is missing, so every mail, such as for user@example.org")) << err_;
  EXPECT_NE(err_.find("delivery.agent is \"maildir\""), std::string::npos) << err_;
  EXPECT_EQ(check(static_users("agent = \"maildir\"\nusers = [\"ann\"]\ndomains = [\"d.example\"]")), 78);
  EXPECT_TRUE(says("users.maildir: is missing, so every mail, such as for ann@d.example")) << err_;
  EXPECT_NE(err_.find("users.agent is"), std::string::npos) << err_;
}

TEST_F(CheckConfigTest, AMaildirOffTheSpoolIsNamed) {
  EXPECT_EQ(check(static_users("maildir = \"/srv/elsewhere/%user%\"")), 78);
  EXPECT_TRUE(says("users.maildir: every mail would get 451")) << err_;
}

TEST_F(CheckConfigTest, TheBuiltInAgentWritesAsLmtpdsUserOnly) {
  EXPECT_EQ(check(static_users(maildir() + "uid = 61235\ngid = 61235")), 78);
  EXPECT_TRUE(says("users.uid: the mail of user@example.org belongs to 61235:61235")) << err_;
  int external = check(static_users("uid = 61235\ngid = 61235\nagent = \"a\""),
                       "[agent.a]\ncommand = \"/bin/true\"\n");
  EXPECT_EQ(external, is_root() ? 0 : 78)
      << "an external agent runs as anybody, where lmtpd starts as root: " << err_;
}

// uid_min applies to users from rows only.
TEST_F(CheckConfigTest, TheConfiguredUserMayBeBelowTheLowest) {
  ASSERT_TRUE(is_root()) << "needs other users";
  EXPECT_EQ(check(static_users("uid = 61235\ngid = 61235\nagent = \"a\""),
                  "[agent.a]\ncommand = \"/bin/true\"\n[delivery]\nuid_min = 61236\n"),
            0)
      << err_;
}

// Root may read every file, but the user that lmtpd changes to may not.
TEST_F(CheckConfigTest, FilesAreTriedAsTheUserThatLmtpdBecomes) {
  ASSERT_TRUE(is_root()) << "needs root";
  std::string file = dir_ + "/users.sqlite";
  std::string users = "driver = \"sqlite\"\npath = \"" + file +
                      "\"\nquery = \"SELECT 'a' AS user, 1 AS uid, 1 AS gid, "
                      "'/a' AS home FROM sqlite_master WHERE name = :address\"";
  std::ofstream(file).close();  // a database without tables
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(check(users), 0) << err_;
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  EXPECT_EQ(check(users), 78);
  EXPECT_TRUE(says("users: user database " + file)) << err_;
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  ASSERT_EQ(::chown((dir_ + "/bodies").c_str(), 0, 0), 0);
  EXPECT_EQ(check(users), 78);
  EXPECT_TRUE(says("limits.body_directory: " + dir_ + "/bodies")) << err_;
  EXPECT_EQ(::geteuid(), 0u) << "in its own process";
}

TEST_F(CheckConfigTest, ASpoolThatTheUserCannotEnterIsNamed) {
  ASSERT_TRUE(is_root()) << "needs root";
  ASSERT_EQ(::chown((dir_ + "/spool").c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod((dir_ + "/spool").c_str(), 0700), 0);
  EXPECT_EQ(check(static_users(maildir())), 78);
  EXPECT_TRUE(says("spool: ")) << err_;
}

// One run reports the faults of the file and of the machine.
TEST_F(CheckConfigTest, AllProblemsAreShownAtOnce) {
  int code = check(static_users(maildir()),
                   "[tls]\ncertificat = \"/x\"\n[agent.a]\ncommand = "
                   "\"/nowhere/agent\"\n[maildir]\ndurabilty = \"fsync\"\n[delivery]\nagent = \"b\"\n");
  EXPECT_EQ(code, 78);
  for (const char* text :
       {"tls.certificat: unknown key; did you mean \"certificate\"?", "tls.key: is missing",
        "maildir.durabilty: unknown key; did you mean \"durability\"?",
        "delivery.agent: there is no section [agent.b]",
        "agent.a.command: /nowhere/agent: No such file or directory"})
    EXPECT_NE(err_.find(text), std::string::npos) << text << " in " << err_;
  EXPECT_EQ(out_, "");
}

// The same refusal as that of `serve`.
TEST_F(CheckConfigTest, AnAddressThatNobodyCanListenAtIsNamed) {
  auto listen = [&](const std::string& address) {
    return check(static_users(maildir()), "[[listen]]\naddress = \"" + address + "\"\n");
  };
  EXPECT_EQ(listen("unix:" + dir_ + "/missing/socket"), 78);
  EXPECT_TRUE(says("listen.address: " + dir_ + "/missing, the directory of the socket")) << err_;
  EXPECT_EQ(listen("unix:" + dir_ + "/lmtpd.toml"), 78);
  EXPECT_NE(err_.find("exists and is not a socket"), std::string::npos) << err_;
  EXPECT_EQ(listen("192.0.2.1:2401"), 78);
  EXPECT_TRUE(says("listen.address: 192.0.2.1:2401: this machine has no such address")) << err_;
  EXPECT_EQ(listen("unix:" + dir_ + "/socket"), 0) << err_;
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/socket"));
}

// If an lmtpd listens there, this may be the lmtpd that reads the file next. Any other program makes the
// start fail.
TEST_F(CheckConfigTest, WhoIsInTheWayIsNamed) {
  ASSERT_TRUE(is_root()) << "sees the descriptors of all processes";
  loopback::Listening tcp = loopback::listen();
  Fd local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  (dir_ + "/socket").copy(un.sun_path, sizeof un.sun_path - 1);
  ASSERT_EQ(::bind(local.get(), reinterpret_cast<sockaddr*>(&un), sizeof un), 0);
  ASSERT_EQ(::listen(local.get(), 1), 0);
  std::string at_port = tcp.address(), at_path = "unix:" + dir_ + "/socket";
  std::string both = "[[listen]]\naddress = \"" + at_port + "\"\n[[listen]]\naddress = \"" + at_path + "\"\n";
  EXPECT_EQ(check(static_users(maildir()), both), 78);
  std::string who = " is in use by " + name_of_this_process() + ", process " + std::to_string(::getpid());
  EXPECT_TRUE(says("listen.address: " + at_port + who)) << err_;
  EXPECT_TRUE(says("listen.address: " + at_path + who)) << err_;
  std::string before = name_of_this_process();
  ASSERT_EQ(::prctl(PR_SET_NAME, "lmtpd"), 0);
  EXPECT_EQ(check(static_users(maildir()), both), 0) << err_;
  EXPECT_NE(err_.find("note: listen.address: a server listens at " + at_port), std::string::npos) << err_;
  (void)::prctl(PR_SET_NAME, before.c_str());
}

// After a wrong key, the other sections are still checked.
TEST_F(CheckConfigTest, OneWrongSectionHidesNoOther) {
  EXPECT_EQ(check(static_users(maildir()),
                  "[quota]\ndrivr = \"none\"\n[tls]\ncertificate = \"/nowhere/c\"\nkey = \"/nowhere/k\"\n"
                  "[[listen]]\naddress = \"unix:/nowhere/socket\"\n[delivery]\ntemporary = "
                  "\"/nowhere/t\"\n[agent.a]\ncommand = \"/bin/true\"\n"),
            78);
  for (const char* text :
       {"quota.drivr: unknown key", "tls.certificate: /nowhere/c: ", "tls.key: /nowhere/k: ",
        "listen.address: /nowhere, ", "delivery.temporary: /nowhere/t: "})
    EXPECT_NE(err_.find(text), std::string::npos) << text << " in " << err_;
}

// Without the configured user, the rest is checked as the calling user.
TEST_F(CheckConfigTest, AMissingUserHidesNothingElse) {
  EXPECT_EQ(check(static_users(maildir()), "[tls]\ncertificate = \"/nowhere/c\"\nkey = \"/nowhere/k\"\n",
                  "user = \"no-such-user-here\"\n", "/nowhere/spool"),
            78);
  for (const char* text : {"user: there is no user", "spool: open /nowhere/spool: ", "tls.certificate: "})
    EXPECT_NE(err_.find(text), std::string::npos) << text << " in " << err_;
}

TEST_F(CheckConfigTest, TheLimitOfOpenFilesIsCompared) {
  constexpr const char* told =
      "warning: limits.connections (1000) and limits.deliveries (64) may need 2512 open files, but "
      "this process may have only 2000";
  pid_t child = ::fork();  // the child lowers its hard limit permanently
  ASSERT_GE(child, 0);
  if (child == 0) {
    rlimit few{256, 2000};
    bool lowered = ::setrlimit(RLIMIT_NOFILE, &few) == 0;
    ::_exit(lowered && check(static_users(maildir())) == 0 && err_.find(told) != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Config config;
  config.limits.connections_max = 1;
  EXPECT_EQ(compare_open_files(config), std::nullopt);
}

// If the source of the machine's accounts does not answer, no account counts as missing. The exit code of
// `serve` then makes the service manager start lmtpd again.
TEST_F(CheckConfigTest, AccountsThatCannotBeReadAreNotMissing) {
  for (int error : {ETIMEDOUT, EMFILE, EIO, ECONNREFUSED}) {
    Status answered = check_answered(error, "vmail", "user");
    ASSERT_FALSE(answered);
    EXPECT_EQ(answered.error().code, Errc::unavailable);
    EXPECT_EQ(answered.error().message.find("user: look-up of \"vmail\" in the machine's accounts failed"),
              0u);
  }
  for (int error : {0, ENOENT, ESRCH, EBADF, EPERM})
    EXPECT_TRUE(check_answered(error, "vmail", "user")) << error;
  Config config;
  config.user = "no-such-user-here";
  auto missing = find_identity(config.user, config.group);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Errc::not_found) << missing.error().message;
}

TEST_F(CheckConfigTest, WhatIsIgnoredIsTold) {
  EXPECT_EQ(check(static_users(maildir()), "[delivery]\nruns = 100\n"), 0) << err_;
  EXPECT_NE(err_.find("delivery.runs: is not used: there is no [agent.NAME]"), std::string::npos) << err_;
}

}  // namespace
}  // namespace twinloft::lmtpd
