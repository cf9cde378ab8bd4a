// Dovecot's LMTP of this machine as a next hop: its mail lies on the spool, and must be durable there.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "../support/fixture.h"
#include "../support/recording_ops.h"
#include "twinloft/lmtpd/route/router.h"

namespace twinloft::lmtpd {
namespace {

// An LMTP server of one connection, which answers line by line.
class LocalServer final : public Connector {
 public:
  std::string after_message = "250 2.0.0 saved\r\n";
  std::string to_recipient = "250 2.1.5 ok\r\n";
  std::string to_lhlo = "250 ok\r\n";
  std::function<void()> before_result = [] {};
  std::string said;     // the commands
  std::string message;  // the last one
  int connections = 0;

  ~LocalServer() override { end(); }
  void end() {
    if (thread_.joinable()) thread_.join();
  }
  Result<Fd> connect(std::size_t) override {
    ++connections;
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    EXPECT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    thread_ = std::thread([this, fd = Fd(ends[1])] { serve(fd.get()); });
    return Fd(ends[0]);
  }

 private:
  void serve(int fd) {
    auto say = [&](const std::string& text) { (void)::send(fd, text.data(), text.size(), MSG_NOSIGNAL); };
    say("220 dovecot\r\n");
    bool in_message = false;
    std::size_t accepted = 0;
    for (std::string line, byte(1, ' '); ::recv(fd, byte.data(), 1, 0) == 1;) {
      line += byte;
      if (!line.ends_with("\r\n")) continue;
      if (in_message && line == ".\r\n") {
        in_message = false;
        before_result();
        for (; accepted > 0; --accepted) say(after_message);
      } else if (in_message) {
        message += line;
      } else {
        said += line;
        in_message = line == "DATA\r\n";
        bool to = line.starts_with("RCPT");
        accepted += to && to_recipient.starts_with("250");
        const bool lhlo = line.starts_with("LHLO"), xclient = line.starts_with("XCLIENT");
        say(in_message ? "354 go\r\n"
            : to       ? to_recipient
            : lhlo     ? to_lhlo
            : xclient  ? "220 go\r\n"
                       : "250 ok\r\n");
      }
      line.clear();
    }
  }
  std::thread thread_;
};

class SieveLocalHop : public test::DirTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(path("spool"));
    volume_ = Uuid::parse("0b6ff95a-3b2a-4b5c-9d5e-0e6b0a1c2d3e").value();
    ASSERT_TRUE(write_spool_marker(path("spool"), volume_).has_value());
    spool_ = Spool::create({path("spool"), volume_}, ops_).value();
    writes_.emplace(*spool_, syncs_);
    RouterConfig config;
    config.hostname = "mx.example";
    config.over_quota = over_;
    RouterConfig::Hop hop;
    hop.spec.name = local_hop_name;
    hop.spec.recipient = HopRecipient::user_and_original;
    hop.spec.xclient = true;
    hop.spec.detail_delimiter = delimiter_;
    config.hops.push_back(hop);
    router_ = Router::create(config, nullptr, server_, clock_, &*writes_);
    Recipient ann;
    ann.text = "Info+lists@example.org";
    ann.detail = "lists";
    ann.user.name = "ann@example.org";
    ann.user.next_hop = local_hop_name;
    envelope_.from = "x@example.com";
    envelope_.recipients = {ann};
  }
  void TearDown() override {
    router_.reset();
    server_.end();
  }
  std::string deliver() {
    MessageBody body;
    body.memory = "Subject: x\r\n\r\nx\r\n";
    body.size = body.memory.size();
    outcome_ = router_->deliver(envelope_, envelope_.recipients.front(), body);
    return fmt::format("{} {} {}", outcome_.reply.code, outcome_.reply.enhanced, to_string(outcome_.durable));
  }
  bool synced() const { return ops_.at("syncfs") != std::string::npos; }

  std::optional<std::string> delimiter_;
  OverQuota over_ = OverQuota::reject;
  OsClock clock_;
  test::RecordingOps ops_;
  Uuid volume_;
  std::unique_ptr<Spool> spool_;
  SyncGroup syncs_{ops_};
  std::optional<ForeignWrites> writes_;
  LocalServer server_;
  std::unique_ptr<Router> router_;
  Envelope envelope_;
  DeliveryOutcome outcome_;
};

TEST_F(SieveLocalHop, IsDurableAfterItsSuccess) {
  bool before = true;
  server_.before_result = [&] { before = synced(); };
  EXPECT_EQ(deliver(), "250 2.0.0 after-agent");
  EXPECT_FALSE(before) << "the sync comes after the hop has stored the message";
  EXPECT_TRUE(synced());
  EXPECT_NE(server_.said.find("RCPT TO:<ann+lists@example.org> ORCPT=rfc822;Info+2Blists@example.org\r\n"),
            std::string::npos)
      << server_.said;
}

TEST_F(SieveLocalHop, LearnsTheClientWhereItOffersXclient) {
  envelope_.client = "192.0.2.7";
  EXPECT_EQ(deliver(), "250 2.0.0 after-agent");
  EXPECT_EQ(server_.said.find("XCLIENT"), std::string::npos) << server_.said;
  router_->give_up();
  TearDown();
  SetUp();
  server_.said.clear();
  server_.to_lhlo = "250-dovecot\r\n250 XCLIENT ADDR PROTO\r\n";
  EXPECT_EQ(deliver(), "250 2.0.0 after-agent");
  EXPECT_NE(server_.said.find("XCLIENT ADDR=192.0.2.7 PROTO=LMTP\r\n"), std::string::npos) << server_.said;
}

TEST_F(SieveLocalHop, TheDetailFollowsTheHopsOwnDelimiter) {
  for (const char* delimiter : {"-", ""}) {
    delimiter_ = delimiter;
    TearDown();
    SetUp();
    server_.said.clear();
    EXPECT_EQ(deliver(), "250 2.0.0 after-agent");
    const std::string name = *delimiter ? "ann-lists@example.org" : "ann@example.org";
    EXPECT_NE(server_.said.find("RCPT TO:<" + name + "> "), std::string::npos) << server_.said;
  }
}

// As for the built-in agent. The hop adds Return-Path and Delivered-To.
TEST_F(SieveLocalHop, GetsTheFieldsThatItDoesNotAdd) {
  envelope_.recipients.front().original_to = "sales@example.com";
  envelope_.recipients.front().original_type = "rfc822";
  EXPECT_EQ(deliver(), "250 2.0.0 after-agent");
  for (const char* field : {"X-Original-To: sales@example.com\r\n", "Received: from ", "Subject: x\r\n"})
    EXPECT_NE(server_.message.find(field), std::string::npos) << field << server_.message;
  for (const char* field : {"Return-Path:", "Delivered-To:"})
    EXPECT_EQ(server_.message.find(field), std::string::npos) << field << server_.message;
}

TEST_F(SieveLocalHop, NothingIsSyncedAfterARefusal) {
  server_.after_message = "552 5.2.2 full\r\n";
  EXPECT_EQ(deliver(), "552 5.2.2 no");
  EXPECT_FALSE(synced());
}

TEST_F(SieveLocalHop, AFullMailboxGetsTheConfiguredReply) {
  over_ = OverQuota::defer;
  TearDown();
  SetUp();
  server_.after_message = "552 5.2.2 full\r\n";
  EXPECT_EQ(deliver(), "452 4.2.2 no");
  EXPECT_NE(outcome_.detail.find("full"), std::string::npos);
  TearDown();
  SetUp();
  server_.after_message = "552 5.3.4 too large\r\n";
  EXPECT_EQ(deliver(), "552 5.3.4 no");
  over_ = OverQuota::reject;
  TearDown();
  SetUp();
  server_.after_message = "452 4.2.2 full\r\n";
  EXPECT_EQ(deliver(), "452 4.2.2 no") << "a temporary refusal never becomes permanent";
}

// lmtpd has found this user in its own database.
TEST_F(SieveLocalHop, AUserWhomTheHopDoesNotKnowIsNotReturned) {
  server_.to_recipient = "550 5.1.1 User doesn't exist\r\n";
  EXPECT_EQ(deliver(), "451 4.3.0 no");
}

TEST_F(SieveLocalHop, IsNotAskedWithoutTheSpool) {
  std::filesystem::remove(path("spool/.twinloft-spool"));
  EXPECT_EQ(deliver(), "451 4.3.0 no");
  EXPECT_EQ(server_.connections, 0);
}

TEST_F(SieveLocalHop, AFailedSyncIsNoSuccess) {
  server_.before_result = [&] {
    ops_.clear();
    ops_.fail_at = 0;
  };
  EXPECT_EQ(deliver(), "451 4.3.0 no");
}

TEST_F(SieveLocalHop, AnotherDeviceIsNoSuccess) {
  ASSERT_TRUE(test::is_root()) << "tests/run runs as root: only root mounts";
  server_.before_result = [&] {
    mount_tmpfs(path("spool"));
    EXPECT_TRUE(write_spool_marker(path("spool"), volume_).has_value());
  };
  EXPECT_EQ(deliver(), "451 4.3.0 no");
  EXPECT_NE(outcome_.detail.find("was mounted again"), std::string::npos) << outcome_.detail;
}

TEST_F(SieveLocalHop, HasItsOwnNameInTheLog) {
  EXPECT_EQ(text_of_hop(local_hop_name), "dovecot-lmtp");
  EXPECT_EQ(text_of_hop("store1"), "next hop store1");
  EXPECT_EQ(router_->limits(envelope_.recipients.front().user).shared.name, "dovecot-lmtp");
}

}  // namespace
}  // namespace twinloft::lmtpd
