// Whether Dovecot and lmtpd treat the mail of users with a script alike.
#include "dovecot_sieve.h"

#include <gtest/gtest.h>

namespace twinloft::lmtpd {
namespace {

class SieveComparison : public testing::Test {
 protected:
  SieveComparison() {
    config_.scripts.dovecot = "d.conf";
    dovecot_.scripts = ByFile{{}, {"~/.dovecot.sieve"}};
    dovecot_.mail_fsync = "optimized";
    dovecot_.recipient_delimiter = "+";
    dovecot_.save_to_detail_mailbox = dovecot_.autocreate = "no";
    dovecot_.autosubscribe = "no";
    dovecot_.lmtp_processes = 100;
    NextHopSettings hop;
    hop.spec.name = local_hop_name;
    config_.next_hops.push_back(hop);
    config_.delivery.sieve.next_hop = local_hop_name;
  }
  // Each finding up to its second ":", after "problem" or "warning".
  std::string found() const {
    std::string out;
    SieveFindings found = compare_sieve(config_, dovecot_);
    for (const std::string& one : found.problems) out += "problem " + one.substr(0, one.find(':')) + " ";
    for (const std::string& one : found.warnings) out += "warning " + one.substr(0, one.find(':')) + " ";
    return out;
  }
  Config config_;
  DovecotDelivery dovecot_;
};

TEST_F(SieveComparison, NothingToSay) {
  EXPECT_EQ(found(), "");
  config_.users.directory.detail_delimiter = "";
  dovecot_.recipient_delimiter = "";
  EXPECT_EQ(found(), "");
}

TEST_F(SieveComparison, RefusesWhatLosesMailOrScripts) {
  dovecot_.mail_fsync = "never";
  EXPECT_EQ(found(), "problem delivery.sieve ");
  dovecot_.mail_fsync = "always";
  dovecot_.recipient_delimiter = "-";
  EXPECT_EQ(found(), "problem users.detail_delimiter ");
  dovecot_.recipient_delimiter = "+";
  dovecot_.scripts = NoUser{"no plug-in"};
  EXPECT_EQ(found(), "problem delivery.sieve ");
}

// Dovecot's LMTP ends the name at each of its delimiters, and would deliver to another user.
TEST_F(SieveComparison, DelimitersMustBeTheSame) {
  struct Row {
    const char *ours, *theirs;
    bool same;
  };
  const Row rows[] = {{"+", "+", true}, {"+", "-+", false}, {"+", "+-", false}, {"+", "-", false},
                      {"+", "", false}, {"", "+", false},   {"", "", true},     {"-", "-", true}};
  for (const Row& row : rows) {
    config_.users.directory.detail_delimiter = row.ours;
    dovecot_.recipient_delimiter = row.theirs;
    EXPECT_EQ(found(), row.same ? "" : "problem users.detail_delimiter ") << row.ours << " " << row.theirs;
  }
  config_.users.directory.detail_first = true;
  EXPECT_EQ(found(), "warning users.detail_first ");
}

TEST_F(SieveComparison, EachConnectionTakesAProcessOfDovecot) {
  config_.next_hops.front().spec.connections_max = 50;
  EXPECT_EQ(found(), "");
  config_.next_hops.front().spec.connections_max = 51;
  EXPECT_EQ(found(), "warning delivery.sieve.connections ") << "a reload has two server processes";
  config_.next_hops.front().spec.connections_max = 100;
  EXPECT_EQ(found(), "warning delivery.sieve.connections ");
  dovecot_.lmtp_processes = 99;
  EXPECT_EQ(found(), "problem delivery.sieve.connections ");
  dovecot_.lmtp_processes = 0;
  EXPECT_EQ(found(), "") << "unknown";
}

TEST_F(SieveComparison, FoldersByDetail) {
  struct Row {
    FoldersByDetail ours;
    const char *saves, *creates;
    const char* wanted;
  };
  const Row rows[] = {{FoldersByDetail::none, "no", "no", ""},
                      {FoldersByDetail::none, "no", "yes", ""},
                      {FoldersByDetail::none, "yes", "yes", "warning maildir.detail_folders "},
                      {FoldersByDetail::existing, "no", "no", "warning maildir.detail_folders "},
                      {FoldersByDetail::existing, "yes", "no", ""},
                      {FoldersByDetail::existing, "yes", "yes", "warning maildir.detail_folders "},
                      {FoldersByDetail::create, "no", "yes", "warning maildir.detail_folders "},
                      {FoldersByDetail::create, "yes", "no", "warning maildir.detail_folders "},
                      {FoldersByDetail::create, "yes", "yes", "warning maildir.subscribe "}};
  for (const Row& row : rows) {
    config_.delivery.maildir.folders.detail = row.ours;
    dovecot_.save_to_detail_mailbox = row.saves;
    dovecot_.autocreate = row.creates;
    EXPECT_EQ(found(), row.wanted) << static_cast<int>(row.ours) << row.saves << row.creates;
  }
  dovecot_.autosubscribe = "yes";
  EXPECT_EQ(found(), "");
}

TEST_F(SieveComparison, AllUsersIsAWarningUnlessItIsWanted) {
  dovecot_.scripts = AllUsers{"sieve_before"};
  EXPECT_EQ(found(), "warning delivery.sieve ");
  config_.scripts.all_users = true;
  EXPECT_EQ(found(), "");
}

TEST_F(SieveComparison, RowsThatDoveconfDoesNotShow) {
  dovecot_.hidden_rows = {"userdb sql"};
  EXPECT_EQ(found(), "warning delivery.sieve.scripts_in_rows ");
  config_.scripts.scripts_in_rows = false;
  EXPECT_EQ(found(), "");
  config_.scripts.scripts_in_rows.reset();
  dovecot_.hidden_rows = {"userdb passwd-file"};
  EXPECT_EQ(found(), "warning delivery.sieve.scripts_in_rows ");
  config_.users.driver = UserDriver::passwd_file;
  EXPECT_EQ(found(), "") << "lmtpd reads these lines";
  dovecot_.hidden_rows = {"userdb sql"};
  dovecot_.scripts = AllUsers{"x"};
  config_.scripts.all_users = true;
  EXPECT_EQ(found(), "");
}

TEST_F(SieveComparison, OfTheTemplate) {
  config_.next_hops.clear();
  config_.delivery.sieve = {.agent = "lda"};
  AgentSpec lda;
  lda.name = "lda";
  lda.command = "/usr/lib/dovecot/dovecot-lda -e -f %from% -a %to% -d %user%";
  config_.agents = {lda};
  dovecot_.save_to_detail_mailbox = "yes";
  EXPECT_EQ(found(), "") << "dovecot-lda files nothing by the detail";
  dovecot_.recipient_delimiter = "-";
  EXPECT_EQ(found(), "warning users.detail_delimiter ");
  dovecot_.recipient_delimiter = "+";
  config_.agents.front().command = "/usr/lib/dovecot/dovecot-lda -d %user%";
  EXPECT_EQ(found(), "warning agent.lda.command ");
}

// An include may be unreadable at a reload.
TEST_F(SieveComparison, AtRunTimeNobodyIsInDoubtEverybody) {
  EXPECT_TRUE(std::holds_alternative<AllUsers>(in_doubt_all(NoUser{"no plug-in"}, config_)));
  EXPECT_TRUE(std::holds_alternative<ByFile>(in_doubt_all(ByFile{}, config_)));
  config_.delivery.sieve = {};
  EXPECT_TRUE(std::holds_alternative<NoUser>(in_doubt_all(NoUser{"off"}, config_)));
}

TEST_F(SieveComparison, DelimitersWithoutAnAnswer) {
  config_.scripts.dovecot = "/nowhere/dovecot.conf";
  config_.users.directory.detail_delimiter = "-";
  EXPECT_EQ(find_delimiters(config_), "+-");
  config_.delivery.sieve = {.agent = "lda"};
  EXPECT_EQ(find_delimiters(config_), "") << "dovecot-lda does not split a name";
}

// doveconf is not there, or does not know the file.
TEST_F(SieveComparison, WithoutAnAnswerAllUsersGoThroughDovecot) {
  config_.scripts.dovecot = "/nowhere/dovecot.conf";
  EXPECT_TRUE(std::holds_alternative<AllUsers>(find_scripts(config_)));
  EXPECT_FALSE(read_dovecot_delivery(config_).has_value());
  config_.scripts.all_users = true;
  EXPECT_TRUE(std::holds_alternative<AllUsers>(find_scripts(config_)));
  config_.delivery.sieve = {};
  EXPECT_TRUE(std::holds_alternative<NoUser>(find_scripts(config_)));
}

}  // namespace
}  // namespace twinloft::lmtpd
