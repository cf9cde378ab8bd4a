// External agents end to end: message on stdin, exit codes, the sync after success, and the real dovecot-lda.
#include <signal.h>

#include <array>
#include <thread>

#include "../support/service_fixture.h"

namespace twinloft::lmtpd {
namespace {

using ExternalTest = test::ServiceFixture;

TEST_F(ExternalTest, GivesTheMessageWithItsFieldsAndLfLineEnds) {
  start({spec("save %home%/saved")});
  recipient_.original_to = "sales@example.org";
  EXPECT_EQ(deliver().code, 250);
  std::string saved = test::slurp(spool_ + "/ann/saved");
  EXPECT_TRUE(
      saved.starts_with("Return-Path: <sender@example.com>\nDelivered-To: ann@example.org\n"
                        "X-Original-To: sales@example.org\nReceived: from mx.example.com"))
      << saved;
  EXPECT_TRUE(saved.ends_with("\nFrom: a@example.com\nSubject: hello\n\nFirst line\nSecond\n"));
}

TEST_F(ExternalTest, GivesTheMessageAsReceivedWhereAsked) {
  AgentSpec s = spec("save saved");
  s.crlf = true;
  s.add_return_path = s.add_delivered_to = s.add_original_to = s.add_received = false;
  start({s});
  EXPECT_EQ(deliver().code, 250);
  EXPECT_EQ(test::slurp(spool_ + "/ann/saved"), test::small_message);
}

TEST_F(ExternalTest, ALargeMessageGoesThroughAFile) {
  start({spec("save saved")});
  std::string text = "Subject: large\r\n\r\n" + std::string(300'000, 'x') + "\r\n";
  EXPECT_EQ(deliver(text).code, 250);
  EXPECT_GT(std::filesystem::file_size(spool_ + "/ann/saved"), 300'000u);
}

TEST_F(ExternalTest, SyncsTheSpoolAfterSuccessOnly) {
  start({spec("exit 0")});
  EXPECT_EQ(deliver().code, 250);
  EXPECT_NE(ops_.at("syncfs"), std::string::npos);
  EXPECT_NE(ops_.at("open root", ops_.at("syncfs")), std::string::npos);  // the spool is checked again

  ops_.clear();
  start({spec("exit 75")});
  EXPECT_EQ(deliver().code, 451);
  EXPECT_EQ(ops_.at("syncfs"), std::string::npos);

  ops_.clear();
  AgentSpec s = spec("exit 0");
  s.syncs = true;
  start({s});
  EXPECT_EQ(deliver().code, 250);
  EXPECT_EQ(ops_.at("syncfs"), std::string::npos);
}

TEST_F(ExternalTest, AFailedSyncIsNoDelivery) {
  start({spec("exit 0")});
  ops_.clear();
  ops_.fail_at = 1;  // the calls are: open root, syncfs
  Reply reply = deliver();
  EXPECT_EQ(ops_.calls().at(1), "syncfs");
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.0");
}

// A failed file system may report success to the agent's own syncs.
TEST_F(ExternalTest, AFailedSpoolIsNoDeliveryOfAnAgentThatSyncs) {
  AgentSpec s = spec("exit 0");
  s.syncs = true;
  start({s});
  ops_.clear();
  ops_.fail_at = 1;  // the calls are: open root, check the file system
  Reply reply = deliver();
  EXPECT_EQ(ops_.calls().at(1), "look");
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.0");
}

TEST_F(ExternalTest, ASpoolThatWentAwayMeanwhileIsNoDelivery) {
  give_to_mail_user(spool_ + "/" + spool_marker_name);
  start({spec("save ../.twinloft-spool")});  // the agent removes the marker
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.0");
}

TEST_F(ExternalTest, AgentsThatDoNotReadHaveNotDelivered) {
  start({spec("noread 0")});
  EXPECT_EQ(deliver().code, 451);
  EXPECT_EQ(deliver("Subject: large\r\n\r\n" + std::string(300'000, 'x') + "\r\n").code, 451);
  start({spec("noread 77")});
  EXPECT_EQ(deliver().code, 550);
  AgentSpec lenient = spec("noread 0");
  lenient.must_read_stdin = false;
  start({lenient});
  EXPECT_EQ(deliver().code, 250);
}

TEST_F(ExternalTest, ReadingAtAnOffsetOrByMappingIsReading) {
  for (const char* how : {"pread", "mmap"}) {
    start({spec(how)});
    EXPECT_EQ(deliver().code, 250) << how;
    EXPECT_EQ(deliver("Subject: large\r\n\r\n" + std::string(300'000, 'x') + "\r\n").code, 250) << how;
  }
}

TEST_F(ExternalTest, AMissingProgramIsOurConfiguration) {
  AgentSpec s = spec("exit 0");
  s.command = path("nothing");
  start({s});
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.5");
}

TEST_F(ExternalTest, AKilledSpawnerIs451ForAll) {
  std::string fifo = path("fifo");
  become_root();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  ::chmod(fifo.c_str(), 0666);
  start({spec("announce " + fifo), [&] {
           AgentSpec s = spec("exit 0");
           s.name = "other";
           return s;
         }()});
  Reply interrupted;
  std::thread delivery([&] { interrupted = deliver(); });
  Fd reader(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 1> started;
  ASSERT_TRUE(read_exact(reader.get(), started).has_value());
  become_root();
  ::kill(spawner_->pid(), SIGKILL);
  become_mail_user();
  delivery.join();
  EXPECT_EQ(interrupted.code, 451);
  EXPECT_EQ(interrupted.enhanced, "4.3.0");
  char byte;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);  // the agent ended together with its spawner
  recipient_.user.agent = "other";
  EXPECT_EQ(deliver().code, 451);
  EXPECT_FALSE(spawner_->alive());
}

TEST_F(ExternalTest, LoopsAndPathsOutsideTheSpoolAreRefusedBeforeTheAgentRuns) {
  start({spec("save ran")});
  EXPECT_EQ(deliver("Delivered-To: ann@example.org\r\n\r\nx\r\n").enhanced, "5.4.6");
  recipient_.user.maildir = "/elsewhere/Maildir";
  EXPECT_EQ(deliver().enhanced, "4.3.5");
  EXPECT_FALSE(std::filesystem::exists(spool_ + "/ann/ran"));
  recipient_.user.maildir.clear();
  EXPECT_EQ(deliver().code, 250);
}

// syncfs covers the spool only. What an agent stores below a home elsewhere would be acknowledged without
// being durable.
TEST_F(ExternalTest, AHomeOutsideTheSpoolIsRefusedWhereTheRowNamesNoMaildir) {
  start({spec("save ran")});
  recipient_.user.maildir.clear();
  recipient_.user.home = "/elsewhere/ann";
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.5");
}

// lmtpd has found the user. If the agent finds no such user, it reads another database, or the template
// passes another name.
TEST_F(ExternalTest, AnAgentThatKnowsNoSuchUserBouncesNothingUnlessConfigured) {
  start({spec("noread 67")});
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.0");
  AgentSpec decides = spec("noread 67");
  ASSERT_TRUE(decides.exits.set(67, "550 5.1.1"));
  start({decides});
  EXPECT_EQ(deliver().code, 550);
}

// dovecot-lda reads its stdin with pread. lmtpd must recognize this as having read the message.
class DovecotTest : public ExternalTest {
 protected:
  // Dovecot 2.4 has other settings, in another syntax.
  static bool is_2_4() {
    return std::filesystem::exists("/usr/share/dovecot/conf.d/10-mail.conf") &&
           test::slurp("/usr/share/dovecot/conf.d/10-mail.conf").find("mail_driver") != std::string::npos;
  }
  void start_lda(const std::string& arguments) {
    std::string conf = path("dovecot.conf");
    std::ofstream(conf) << (is_2_4() ? "dovecot_config_version = 2.4.0\ndovecot_storage_version = "
                                       "2.4.0\nmail_driver = maildir\nmail_path = "
                                     : "mail_location = maildir:")
                        << spool_ << "/ann/Maildir\nlog_path = /dev/stderr\nbase_dir = " << path("run")
                        << "\nssl = no\nprotocols =\n"
                        << "postmaster_address = postmaster@example.org\nstats_writer_socket_path =\n";
    ::chmod(conf.c_str(), 0644);
    AgentSpec s = spec("");
    s.command = "/usr/lib/dovecot/dovecot-lda -c " + conf + " " + arguments;
    start({s});
  }
};

TEST_F(DovecotTest, DeliversThroughDovecotsAgent) {
  ASSERT_EQ(::access("/usr/lib/dovecot/dovecot-lda", X_OK), 0) << "dovecot-core is not installed";
  start_lda("-e -f %from% [ -a %original_to% ]");
  Reply reply = deliver();
  ASSERT_EQ(reply.code, 250) << reply.text;
  become_root();
  auto names = test::list(spool_ + "/ann/Maildir/new");
  ASSERT_EQ(names.size(), 1u);
  EXPECT_TRUE(test::slurp(spool_ + "/ann/Maildir/new/" + names[0]).ends_with("\n\nFirst line\nSecond\n"));
}

TEST_F(DovecotTest, AnOptionThatDovecotLacksIsOurConfiguration) {
  ASSERT_EQ(::access("/usr/lib/dovecot/dovecot-lda", X_OK), 0) << "dovecot-core is not installed";
  start_lda("-n");
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.5");
}

}  // namespace
}  // namespace twinloft::lmtpd
