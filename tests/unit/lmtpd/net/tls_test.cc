// STARTTLS end to end. No input may cross from clear text into TLS, or from TLS into clear text.
#include "twinloft/lmtpd/tls/tls.h"
#include "server_fixture.h"
#include "tls_client.h"

namespace twinloft::lmtpd {
namespace {

class TlsServer : public ServerTest {
 protected:
  TlsServer() { rules_.tls = TlsPolicy::offered; }
  void start_with(const std::string& client_ca = {}, bool required = false,
                  const std::vector<std::string>& subjects = {}) {
    Credentials own = make_credentials("mx.example.org");
    auto context = TlsContext::create({own.certificate, own.key, client_ca, required, true, subjects});
    ASSERT_TRUE(context) << context.error().message;
    config_.tls = *context;
    start();
  }
  // A connection that is ready for the handshake.
  std::unique_ptr<LmtpClient> asked() {
    auto client = std::make_unique<LmtpClient>(port_);
    client->begin();
    EXPECT_EQ(client->ask("STARTTLS\r\n").substr(0, 4), "220 ");
    return client;
  }
  static void envelope(TlsClient& tls) {
    for (const char* line :
         {"LHLO c.example.org\r\n", "MAIL FROM:<a@example.org>\r\n", "RCPT TO:<ann@example.org>\r\n"})
      ASSERT_EQ(tls.ask(line).substr(0, 3), "250") << line;
  }
};

TEST_F(TlsServer, AMessage) {
  start_with();
  for (bool trickled : {false, true}) {
    auto client = asked();
    TlsClient tls(*client, nullptr, trickled);
    ASSERT_TRUE(tls.handshake());
    envelope(tls);
    ASSERT_EQ(tls.ask("DATA\r\n").substr(0, 3), "354");
    EXPECT_EQ(tls.ask(message).substr(0, 3), "250");
    EXPECT_EQ(tls.ask("QUIT\r\n").substr(0, 3), "221");
    EXPECT_EQ(tls.line(), "");
  }
  auto delivered = deliverer_.wait_for_delivered(2);
  for (const auto& d : delivered) {
    EXPECT_EQ(d.text, message_stored);
    EXPECT_TRUE(d.tls.starts_with("TLSv1.3 with cipher TLS_")) << d.tls;
  }
}

// More data than sockets, records and buffers hold, in both directions.
TEST_F(TlsServer, ALotOfEverything) {
  config_.session.bad_commands_max = 100'000;
  start_with();
  auto client = asked();
  TlsClient tls(*client);
  ASSERT_TRUE(tls.handshake());
  envelope(tls);
  std::string text = "Subject: large\r\n\r\n";
  while (text.size() < 9u << 20) text += std::string(990, 'x') + "\r\n";
  ASSERT_EQ(tls.ask("DATA\r\n").substr(0, 3), "354");
  EXPECT_EQ(tls.ask(text + ".\r\n").substr(0, 3), "250");
  EXPECT_EQ(deliverer_.wait_for_delivered(1)[0].text, text);
  constexpr int commands = 5000;
  std::string many;
  for (int i = 0; i < commands; ++i) many += "RSET\r\n";
  tls.send(many);
  for (int i = 0; i < commands; ++i) ASSERT_EQ(tls.reply().substr(0, 3), "250") << i;
}

// CVE-2011-0411, CVE-2021-33515: input in the same segment as STARTTLS.
TEST_F(TlsServer, CommandsInTheSegmentOfStarttlsAreDiscarded) {
  start_with();
  LmtpClient client(port_);
  client.begin();
  EXPECT_EQ(client.ask("STARTTLS\r\nLHLO evil.example\r\nMAIL FROM:<evil@example.org>\r\n").substr(0, 4),
            "220 ");
  TlsClient tls(client);
  ASSERT_TRUE(tls.handshake());
  EXPECT_EQ(tls.ask("RCPT TO:<ann@example.org>\r\n").substr(0, 3), "503");
  EXPECT_EQ(tls.ask("MAIL FROM:<a@example.org>\r\n").substr(0, 3), "503") << "LHLO was not executed either";
}

TEST_F(TlsServer, ClearTextInsteadOfAHandshakeEndsTheConnection) {
  start_with();
  auto client = asked();
  client->send("MAIL FROM:<evil@example.org>\r\nRCPT TO:<ann@example.org>\r\nDATA\r\nx\r\n.\r\n");
  while (!client->reply().empty()) {
  }
  EXPECT_TRUE(deliverer_.delivered().empty());
  LmtpClient other(port_);
  other.begin();
}

// CVE-2026-45185: TLS ends cleanly within a chunk, and clear text follows. The clear text must be ignored.
TEST_F(TlsServer, CloseNotifyWithinAChunkEndsTheInput) {
  start_with();
  for (const char* after : {"x", "0123456789\r\nBDAT 3 LAST\r\nxyz", "\r\n.\r\nQUIT\r\n"}) {
    auto client = asked();
    TlsClient tls(*client);
    ASSERT_TRUE(tls.handshake());
    envelope(tls);
    tls.send("BDAT 20 LAST\r\n0123456789");
    tls.close_notify();
    (void)client->try_send(after);
    EXPECT_EQ(tls.line(), "");
  }
  LmtpClient other(port_);
  other.begin();
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(TlsServer, AnEndWithoutNoticeDeliversNothing) {
  start_with();
  auto client = asked();
  TlsClient tls(*client);
  ASSERT_TRUE(tls.handshake());
  envelope(tls);
  ASSERT_EQ(tls.ask("DATA\r\n").substr(0, 3), "354");
  tls.send("Subject: cut\r\n\r\ntext\r\n.");
  client->finish_sending();
  EXPECT_EQ(tls.line(), "");
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(TlsServer, ClientCertificates) {
  Credentials good = make_credentials("mta.example.net"), other = make_credentials("evil.example");
  start_with(good.certificate, true);
  struct Case {
    const Credentials* shown;
    bool taken;
  };
  for (const Case& c : {Case{&good, true}, Case{nullptr, false}, Case{&other, false}}) {
    auto client = asked();
    TlsClient tls(*client, c.shown);
    bool works = tls.handshake() && tls.ask("NOOP\r\n").substr(0, 3) == "250";
    EXPECT_EQ(works, c.taken);
    if (!works) continue;
    envelope(tls);
    ASSERT_EQ(tls.ask("DATA\r\n").substr(0, 3), "354");
    EXPECT_EQ(tls.ask(message).substr(0, 3), "250");
  }
  auto delivered = deliverer_.wait_for_delivered(1);
  EXPECT_NE(delivered[0].tls.find("client certificate mta.example.net"), std::string::npos)
      << delivered[0].tls;
}

// The authority has signed both certificates. One has a name that is not allowed.
TEST_F(TlsServer, SubjectsOfClientCertificates) {
  Credentials good = make_credentials("MTA.example.net"), other = make_credentials("web.example.net");
  start_with(good.certificate + other.certificate, true, {"mx9.example.net", "mta.example.net"});
  for (auto [shown, taken] : {std::pair(&good, true), {&other, false}}) {
    auto client = asked();
    TlsClient tls(*client, shown);
    EXPECT_EQ(tls.handshake() && tls.ask("NOOP\r\n").substr(0, 3) == "250", taken);
  }
  auto client = asked();
  TlsClient without(*client);
  EXPECT_FALSE(without.handshake() && without.ask("NOOP\r\n").substr(0, 3) == "250");
}

// Commands sent ahead are unread when the handshake fails. A reset would destroy the alert with the reason.
TEST_F(TlsServer, ARefusedHandshakeIsNotReset) {
  start_with(make_credentials("mta.example.net").certificate, true);
  auto client = asked();
  TlsClient tls(*client);
  ASSERT_TRUE(tls.handshake("NOOP\r\n"));
  EXPECT_EQ(tls.line(), "") << "the alert";
  char byte;
  EXPECT_EQ(::recv(client->fd(), &byte, 1, 0), 0) << std::strerror(errno);
}

TEST_F(TlsServer, ARequestedCertificateMayBeLeftOut) {
  start_with(make_credentials("mta.example.net").certificate, false);
  auto client = asked();
  TlsClient tls(*client);
  ASSERT_TRUE(tls.handshake());
  EXPECT_EQ(tls.ask("NOOP\r\n").substr(0, 3), "250");
}

TEST_F(TlsServer, NeedsACertificate) {
  std::vector<Listener> listeners;
  auto bound = Listener::bind({"127.0.0.1:0", "127.0.0.1", 0, "", 0, {}, rules_});
  ASSERT_TRUE(bound);
  listeners.push_back(std::move(*bound));
  auto server = Server::create(config_, std::move(listeners), users_, deliverer_, clock_, random_);
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().message.find("[tls]"), std::string::npos) << server.error().message;
}

TEST(TlsContext, MaterialThatIsNoneIsNamed) {
  Credentials one = make_credentials("one"), two = make_credentials("two");
  auto refused = [](const TlsMaterial& m) {
    auto context = TlsContext::create(m);
    return context ? "taken" : context.error().message;
  };
  EXPECT_EQ(refused({one.certificate, one.key, {}}), "taken");
  EXPECT_EQ(refused({one.certificate + two.certificate, one.key, two.certificate}), "taken");
  EXPECT_NE(refused({"", one.key, {}}).find("the certificate"), std::string::npos);
  EXPECT_NE(refused({one.key, one.key, {}}).find("the certificate"), std::string::npos);
  EXPECT_NE(refused({one.certificate, "", {}}).find("the private key"), std::string::npos);
  EXPECT_NE(refused({one.certificate, two.key, {}}).find("not the certificate's"), std::string::npos);
  EXPECT_NE(refused({one.certificate, one.key, "nothing"}).find("client_ca"), std::string::npos);
  // If the damage were accepted, later certificates would be missing from the chain or from the authorities.
  std::string damaged = two.certificate, cut = two.certificate.substr(0, two.certificate.size() / 2);
  damaged[damaged.size() / 2] = '!';
  for (const std::string& bad : {damaged, cut}) {
    EXPECT_NE(
        refused({one.certificate + bad + two.certificate, one.key, {}}).find("a certificate of the chain"),
        std::string::npos);
    EXPECT_NE(refused({one.certificate, one.key, one.certificate + bad}).find("a certificate of client_ca"),
              std::string::npos);
  }
  EXPECT_EQ(
      refused({"Subject: x\n" + one.certificate + "\nnext\n" + two.certificate + "\nthe end\n", one.key, {}}),
      "taken");
}

TEST(TlsContext, KnowsWhenItEnds) {
  Credentials later = make_credentials("later", 9), past = make_credentials("past", -2);
  EXPECT_EQ((*TlsContext::create({later.certificate, later.key, {}}))->expires_in_days(), 9);
  EXPECT_LT((*TlsContext::create({past.certificate, past.key, {}}))->expires_in_days(), 0);
}

}  // namespace
}  // namespace twinloft::lmtpd
