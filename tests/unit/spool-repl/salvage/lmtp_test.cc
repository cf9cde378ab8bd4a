// The LMTP client: its commands, and its result for each reply and for none.
#include <gtest/gtest.h>

#include <fcntl.h>

#include "fake_lmtp.h"
#include "lmtp_connection.h"

namespace twinloft::repl::salvage {
namespace {

using End = Sent::End;
using At = FakeLmtp::At;
using Answer = FakeLmtp::Answer;

TEST(ForwardPath, QuotedWhereItMustBe) {
  EXPECT_EQ(forward_path("ann@example.org"), "ann@example.org");
  EXPECT_EQ(forward_path("ann"), "ann");
  EXPECT_EQ(forward_path("a.b+c/d@example.org"), "a.b+c/d@example.org");
  EXPECT_EQ(forward_path("a b@example.org"), "\"a b\"@example.org");
  EXPECT_EQ(forward_path("a\"\\>@example.org"), "\"a\\\"\\\\>\"@example.org");
  EXPECT_EQ(forward_path("a..b@c@example.org"), "\"a..b@c\"@example.org");
  for (const char* bad : {"\xc3\xa4@example.org", "a\r\nDATA@example.org", "a@exam>ple", "a@b c"})
    EXPECT_FALSE(forward_path(bad)) << bad;
}

class Lmtp : public testing::Test {
 protected:
  Sent deliver(FakeLmtp& server, const std::string& text = late("one"),
               const std::string& address = "ann@example.org") {
    return deliver(*make_lmtp_target(server.server(), {}), text, address);
  }
  Sent deliver(Target& target, const std::string& text = late("one"),
               const std::string& address = "ann@example.org") {
    std::string path = directory_ / "content";
    write(path, text);
    Fd content(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return target.deliver(Message{}, address, content.get());
  }
  // The first stored message, with LF line ends.
  static std::string first_content(const FakeLmtp& server) {
    std::string out = server.taken().at(0).content;
    std::erase(out, '\r');
    return out;
  }

  TemporaryDirectory directory_;
};

TEST_F(Lmtp, TheContentArrivesAsItWasButForWhomItWasDeliveredTo) {
  for (bool trickle : {false, true}) {
    FakeLmtp server({}, trickle);
    Sent sent = deliver(server);
    EXPECT_EQ(sent.end, End::delivered);
    EXPECT_EQ(sent.detail, "250 2.0.0 delivered");
    ASSERT_EQ(server.taken().size(), 1u);
    EXPECT_EQ(server.taken()[0].from, "<> BODY=8BITMIME") << "the failure causes no bounce";
    EXPECT_EQ(server.taken()[0].to, "ann@example.org");
    std::string expected = late("one");
    expected.erase(expected.find("Delivered-To:"), std::string("Delivered-To: ann@example.org\n").size());
    EXPECT_EQ(first_content(server), expected);
  }
}

TEST_F(Lmtp, LargeAndOddContent) {
  FakeLmtp server;
  std::string large = "Subject: large\n\n";
  for (int i = 0; i < 40'000; ++i) large += fmt::format(".line {}\n\n..\n", i);
  EXPECT_EQ(deliver(server, large).end, End::delivered);
  EXPECT_EQ(deliver(server, "").end, End::delivered);
  ASSERT_EQ(server.taken().size(), 2u);
  EXPECT_EQ(first_content(server), large);
  EXPECT_EQ(server.taken()[1].content, "");
}

TEST_F(Lmtp, CompressedMailIsNotSent) {
  FakeLmtp server;
  for (const char* start : {"\x1f\x8b\x08", "\x28\xb5\x2f\xfd", "BZh9", "Dovecot-LZ4"}) {
    Sent sent = deliver(server, start);
    EXPECT_EQ(sent.end, End::failed);
    EXPECT_NE(sent.detail.find("--copy"), std::string::npos) << sent.detail;
  }
  EXPECT_EQ(server.connections(), 0u);
}

TEST_F(Lmtp, OneConnectionForMany) {
  FakeLmtp server;
  auto target = make_lmtp_target(server.server(), {});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(deliver(*target).end, End::delivered);
  EXPECT_EQ(server.connections(), 1u);
  EXPECT_EQ(server.taken().size(), 3u);
}

struct Failure {
  At at;
  Answer answer;
  End end;
};

// After each failure, the same target delivers the next message.
TEST_F(Lmtp, EachAnswerAtEachPlace) {
  const std::vector<Failure> failures = {
      {At::greeting, "421 4.3.2 full\r\n", End::away},
      {At::greeting, Answer::gone(), End::away},
      {At::greeting, "hello\r\n", End::away},
      {At::lhlo, "500 5.5.1 no\r\n", End::away},
      {At::lhlo, Answer::gone("250-half\r\n"), End::away},
      {At::mail, "451 4.3.0 later\r\n", End::deferred},
      {At::mail, "550 5.7.1 no\r\n", End::refused},
      {At::mail, Answer::gone(), End::failed},
      {At::rcpt, "450 4.2.0 later\r\n", End::deferred},
      {At::rcpt, "550 5.1.1 unknown\r\n", End::refused},
      {At::rcpt, Answer::gone("421 4.3.2 stopping\r\n"), End::deferred},
      {At::rcpt, "25 0\r\n", End::failed},
      {At::data, "451 4.3.0 later\r\n", End::deferred},
      {At::data, "554 5.3.0 no\r\n", End::refused},
      {At::data, Answer::gone(), End::failed},
      {At::end, "451 4.3.0 later\r\n", End::deferred},
      {At::end, "552 5.3.4 too large\r\n", End::refused},
      {At::end, Answer::gone(), End::unknown},
      {At::end, Answer::gone("2"), End::unknown},
      {At::end, Answer::gone("250-half\r\n"), End::unknown},
      {At::end, "?\r\n", End::unknown},
      {At::end, "354 what\r\n", End::unknown},
      {At::end, Answer::gone("250 2.0.0 and gone\r\n"), End::delivered},
  };
  for (const Failure& f : failures) {
    bool done = false;
    FakeLmtp server([&](At at, const std::string&) {
      return at == f.at && !std::exchange(done, true) ? f.answer : Answer();
    });
    auto target = make_lmtp_target(server.server(), {});
    Sent sent = deliver(*target);
    EXPECT_EQ(sent.end, f.end) << static_cast<int>(f.at) << " " << f.answer.bytes << ": " << sent.detail;
    EXPECT_FALSE(sent.detail.empty());
    EXPECT_EQ(server.taken().size(), 0u) << f.answer.bytes;
    Sent next = deliver(*target);
    EXPECT_EQ(next.end, End::delivered)
        << static_cast<int>(f.at) << " " << f.answer.bytes << ": " << next.detail;
    EXPECT_EQ(server.taken().size(), 1u);
  }
}

TEST_F(Lmtp, WithoutTheFinalDotItIsNotDelivered) {
  FakeLmtp server([](At at, const std::string&) {
    return at == At::content ? Answer::gone("452 4.3.1 no room\r\n") : Answer();
  });
  std::string large;  // more than the kernel buffers for a server that does not read
  while (large.size() < 64 << 20) large += "line\n";
  Sent sent = deliver(server, large);
  EXPECT_EQ(sent.end, End::failed) << sent.detail;
  EXPECT_EQ(server.taken().size(), 0u);
}

TEST_F(Lmtp, AServerThatEndedAnIdleConnectionIsCalledAgain) {
  int resets = 0;
  FakeLmtp server(
      [&](At at, const std::string&) { return at == At::rset && ++resets == 1 ? Answer::gone() : Answer(); });
  auto target = make_lmtp_target(server.server(), {});
  EXPECT_EQ(deliver(*target).end, End::delivered);
  EXPECT_EQ(deliver(*target).end, End::delivered);
  EXPECT_EQ(server.connections(), 2);
}

TEST_F(Lmtp, NobodyThere) {
  LmtpServer gone;
  {
    FakeLmtp server;
    gone = server.server();
  }
  Sent sent = deliver(*make_lmtp_target(gone, {}));
  EXPECT_EQ(sent.end, End::away);
  EXPECT_NE(sent.detail.find(gone.text), std::string::npos) << sent.detail;
}

}  // namespace
}  // namespace twinloft::repl::salvage
