#include "twinloft/lmtpd/config/check_command.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace twinloft::lmtpd {
namespace {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

Outcome check(std::vector<std::string> args) {
  std::ostringstream out;
  std::ostringstream err;
  const int status = check_command(args, out, err);
  return {status, out.str(), err.str()};
}

class CheckCommand : public testing::Test {
 protected:
  void SetUp() override {
    const char* base = std::getenv("TMPDIR");
    std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/check_command.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    make("agent", 0755);
    make("plain", 0644);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void make(const std::string& name, mode_t mode) const {
    std::ofstream(folder_ + "/" + name) << "x";
    chmod((folder_ + "/" + name).c_str(), mode);
  }
  std::string folder_;
};

TEST_F(CheckCommand, PrintsTheArray) {
  const Outcome o = check({folder_ + "/agent -f %from% -d %to%", "from=", "to=a b@example.org"});
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.out, "[\"" + folder_ + "/agent\", \"-f\", \"\", \"-d\", \"a b@example.org\"]\n");
  EXPECT_EQ(o.err, "");
}

TEST_F(CheckCommand, EscapesJson) {
  const Outcome o = check({folder_ + "/agent x%to%", "to=\"\\\t\x01\x7f\xC3\xBC\xFF\xED\xA0\x80/"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find(R"("x\"\\\u0009\u0001\u007f)"
                       "\xC3\xBC"
                       R"(\udcff\udced\udca0\udc80/"])"),
            std::string::npos)
      << o.out;
  EXPECT_NE(o.err.find("note: argument 1 is not UTF-8"), std::string::npos) << o.err;
}

TEST_F(CheckCommand, UsesSamplesAndSaysSo) {
  const Outcome o = check({folder_ + "/agent %from% %to% %uid%", "to=x"});
  EXPECT_EQ(o.status, 0);
  EXPECT_NE(o.out.find("\"sender@example.net\", \"x\", \"1000\""), std::string::npos) << o.out;
  EXPECT_EQ(o.err, "note: sample values are used for: from uid\n");
  const Outcome all = check({folder_ +
                             "/agent %from%%to%%user%%detail%%domain%%original_to%%home%%uid%%gid%%maildir%"
                             "%client%%lhlo%%id%%size%"});
  EXPECT_EQ(all.status, 0) << all.err;
}

TEST_F(CheckCommand, ABadTemplateIs64WithACaret) {
  const Outcome o = check({"/bin/agent -d %rcpt%"});
  EXPECT_EQ(o.status, 64);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(o.err.find("error: column 15: unknown macro %rcpt%"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("\n  /bin/agent -d %rcpt%\n                ^\n"), std::string::npos) << o.err;
}

TEST_F(CheckCommand, BadArgumentsAre64) {
  EXPECT_EQ(check({}).status, 64);
  EXPECT_NE(check({}).err.find("usage:"), std::string::npos);
  EXPECT_EQ(check({"/bin/agent", "-d", "%to%"}).status, 64);
  EXPECT_NE(check({"/bin/agent", "-d"}).err.find("is the template quoted"), std::string::npos);
  EXPECT_NE(check({"/bin/agent", "rcpt=x"}).err.find("there is no macro \"rcpt\""), std::string::npos);
  EXPECT_EQ(check({"--help"}).status, 0);
}

TEST_F(CheckCommand, RefusedValuesAre65) {
  const Outcome o = check({folder_ + "/agent -d %to%", "to=-x"});
  EXPECT_EQ(o.status, 65);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(o.err.find("%to% starts with '-'"), std::string::npos) << o.err;
  EXPECT_EQ(check({folder_ + "/agent -d %to%", "to=x\ny"}).status, 65);
}

TEST_F(CheckCommand, AProgramThatCannotRunIs78AfterTheArray) {
  for (const char* name : {"missing", "plain", ".", "plain/x"}) {
    const Outcome o = check({folder_ + "/" + name + " x"});
    EXPECT_EQ(o.status, 78) << name;
    EXPECT_TRUE(o.out.ends_with("\", \"x\"]\n")) << o.out;
    EXPECT_NE(o.err.find("cannot be run: "), std::string::npos) << o.err;
  }
  EXPECT_NE(check({folder_ + "/missing"}).err.find("No such file or directory"), std::string::npos);
  EXPECT_NE(check({folder_ + "/plain"}).err.find("Permission denied"), std::string::npos);
}

TEST_F(CheckCommand, LooksIntoPathAndWarns) {
  const std::string before = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "";
  ASSERT_EQ(setenv("PATH", ("/nonexistent:" + folder_).c_str(), 1), 0);
  const Outcome found = check({"agent x"});
  const Outcome plain = check({"plain x"});
  const Outcome missing = check({"missing x"});
  ASSERT_EQ(setenv("PATH", before.c_str(), 1), 0);
  EXPECT_EQ(found.status, 0);
  EXPECT_NE(found.err.find("not an absolute path: what it names depends on PATH"), std::string::npos)
      << found.err;
  EXPECT_EQ(plain.status, 78);
  EXPECT_NE(plain.err.find("Permission denied"), std::string::npos);
  EXPECT_EQ(missing.status, 78);
  EXPECT_NE(missing.err.find("No such file"), std::string::npos);
}

TEST_F(CheckCommand, WarnsOfShellSyntaxAndOfDovecotsOptions) {
  const Outcome shell = check({folder_ + "/agent x | y"});
  EXPECT_EQ(shell.status, 0);
  EXPECT_NE(shell.err.find("warning: column "), std::string::npos) << shell.err;
  make("dovecot-lda", 0755);
  const Outcome lda = check({folder_ + "/dovecot-lda -n -d %user%"});
  EXPECT_EQ(lda.status, 0);
  EXPECT_NE(lda.err.find("option -n ended with Dovecot 1.x"), std::string::npos) << lda.err;
}

}  // namespace
}  // namespace twinloft::lmtpd
