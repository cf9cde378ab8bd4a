#include "twinloft/mailbench/session.h"

#include <gtest/gtest.h>

namespace twinloft::mailbench {
namespace {

// Runs a session on the server's replies, whole and byte by byte.
class SessionTest : public testing::TestWithParam<bool> {
 protected:
  Status say(Session& s, std::string_view text) {
    if (!GetParam()) return s.feed(text, at_);
    for (char c : text) TL_TRY(s.feed(std::string_view(&c, 1), at_));
    return {};
  }
  static std::string sent(Session& s) { return std::exchange(s.output(), {}); }

  Session open(bool pipelining) {
    Session s({.hello = "me", .pipelining = true}, at_);
    EXPECT_TRUE(say(s, "220 here\r\n"));
    EXPECT_EQ(sent(s), "LHLO me\r\n");
    EXPECT_TRUE(say(s, pipelining ? "250-here\r\n250-SIZE 1000\r\n250 PIPELINING\r\n" : "250 here\r\n"));
    EXPECT_TRUE(s.ready());
    EXPECT_EQ(s.pipelining(), pipelining);
    return s;
  }
  // Sends the content.
  void content(Session& s) {
    ASSERT_TRUE(s.content_wanted());
    s.content_sent(at_);
    ASSERT_FALSE(s.content_wanted());
  }
  static std::string results(std::span<const RecipientResult> results) {
    std::string out;
    for (const RecipientResult& r : results) out += fmt::format("{} {},", to_string(r.outcome), r.code);
    return out;
  }
  // The phases since the last call: name, milliseconds, and "!" for a failure.
  static std::string times(Session& s) {
    std::string out;
    for (const PhaseTime& t : s.take_times())
      out += fmt::format("{} {}{},", to_string(t.phase),
                         std::chrono::duration_cast<std::chrono::milliseconds>(t.took).count(),
                         t.good ? "" : "!");
    return out;
  }
  void pass(int milliseconds) { at_ = at_ + std::chrono::milliseconds(milliseconds); }
  Instant at_{1'000'000'000};
  static inline const Envelope kTwo{.from = "a@b", .to = {"u1@d", "u2@d"}, .size = 99};
  static inline const Envelope kThree{.from = "a@b", .to = {"u1@d", "u2@d", "u3@d"}, .size = 99};
};
INSTANTIATE_TEST_SUITE_P(Splits, SessionTest, testing::Bool());

TEST_P(SessionTest, Pipelined) {
  Session s = open(true);
  s.begin(kTwo, at_);
  EXPECT_EQ(sent(s), "MAIL FROM:<a@b> SIZE=99\r\nRCPT TO:<u1@d>\r\nRCPT TO:<u2@d>\r\nDATA\r\n");
  ASSERT_TRUE(say(s, "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n"));
  content(s);
  ASSERT_TRUE(say(s, "250 2.0.0 ok\r\n"));
  EXPECT_FALSE(s.finished());
  ASSERT_TRUE(say(s, "451-4.3.0 not\r\n451 4.3.0 now\r\n"));
  ASSERT_TRUE(s.finished());
  EXPECT_EQ(results(s.take_results()), "acknowledged 250,deferred 451,");
  EXPECT_TRUE(s.ready());
  s.quit();
  EXPECT_EQ(sent(s), "QUIT\r\n");
  ASSERT_TRUE(say(s, "221 bye\r\n"));
  EXPECT_TRUE(s.ended());
}

TEST_P(SessionTest, StepByStep) {
  Session s = open(false);
  s.begin(kTwo, at_);
  EXPECT_EQ(sent(s), "MAIL FROM:<a@b>\r\n");
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  EXPECT_EQ(sent(s), "RCPT TO:<u1@d>\r\n");
  ASSERT_TRUE(say(s, "550 no\r\n"));
  EXPECT_EQ(sent(s), "RCPT TO:<u2@d>\r\n");
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  EXPECT_EQ(sent(s), "DATA\r\n");
  ASSERT_TRUE(say(s, "354 go\r\n"));
  content(s);
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  EXPECT_EQ(results(s.take_results()), "refused 550,acknowledged 250,");
}

TEST_P(SessionTest, RepliesBelongToTheAcceptedRecipientsInOrder) {
  Session s = open(true);
  s.begin(kThree, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n250 1\r\n452 2\r\n250 3\r\n354 go\r\n"));
  content(s);
  ASSERT_TRUE(say(s, "552 1\r\n250 3\r\n"));
  ASSERT_TRUE(s.finished());
  EXPECT_EQ(results(s.take_results()), "refused 552,deferred 452,acknowledged 250,");
}

TEST_P(SessionTest, RefusedMailRefusesAllWithItsOwnCode) {
  Session s = open(true);
  s.begin(kTwo, at_);
  ASSERT_TRUE(say(s, "452 full\r\n503 no\r\n503 no\r\n503 no\r\n"));
  ASSERT_TRUE(s.finished());
  EXPECT_EQ(results(s.take_results()), "deferred 452,deferred 452,");
  Session plain = open(false);
  plain.begin(kTwo, at_);
  ASSERT_TRUE(say(plain, "552 too big\r\n"));
  ASSERT_TRUE(plain.finished());
  EXPECT_EQ(results(plain.take_results()), "refused 552,refused 552,");
}

TEST_P(SessionTest, AllRecipientsRefusedEndsWithRset) {
  for (bool pipelining : {true, false}) {
    Session s = open(pipelining);
    s.begin(Envelope{.from = "a@b", .to = {"u1@d"}, .size = 1}, at_);
    ASSERT_TRUE(say(s, pipelining ? "250 ok\r\n550 no\r\n503 none\r\n" : "250 ok\r\n550 no\r\n"));
    EXPECT_TRUE(sent(s).ends_with("RSET\r\n"));
    EXPECT_FALSE(s.finished());
    ASSERT_TRUE(say(s, "250 ok\r\n"));
    ASSERT_TRUE(s.finished());
    EXPECT_EQ(results(s.take_results()), "refused 550,");
  }
}

TEST_P(SessionTest, RefusedDataCountsForAcceptedRecipientsOnly) {
  Session s = open(true);
  s.begin(kTwo, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n550 no\r\n250 ok\r\n451 later\r\n250 reset\r\n"));
  ASSERT_TRUE(s.finished());
  EXPECT_EQ(results(s.take_results()), "refused 550,deferred 451,");
}

TEST_P(SessionTest, LostBeforeTheDotIsUnsentAndAfterItUnknown) {
  Session s = open(true);
  s.begin(kTwo, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n550 no\r\n250 ok\r\n354 go\r\n"));
  EXPECT_EQ(results(s.abandon()), "refused 550,unsent 0,");
  Session t = open(true);
  t.begin(kThree, at_);
  ASSERT_TRUE(say(t, "250 ok\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n"));
  content(t);
  ASSERT_TRUE(say(t, "250 first\r\n25"));
  EXPECT_EQ(results(t.abandon()), "acknowledged 250,unknown 0,unknown 0,");
}

TEST_P(SessionTest, AReplyTooManyIsAnErrorAfterTheResult) {
  Session s = open(true);
  s.begin(Envelope{.from = "a@b", .to = {"u1@d"}, .size = 1}, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n250 ok\r\n354 go\r\n"));
  content(s);
  Status status = say(s, "250 ok\r\n250 again\r\n");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::conflict);
  ASSERT_TRUE(s.finished());
  EXPECT_EQ(results(s.take_results()), "acknowledged 250,");
}

TEST_P(SessionTest, WhatIsOutOfPlaceIsAnError) {
  Session greeting({}, at_);
  EXPECT_FALSE(say(greeting, "421 busy\r\n"));
  Session lhlo({}, at_);
  EXPECT_FALSE(say(lhlo, "220 hi\r\n500 what\r\n"));
  Session idle = open(true);
  EXPECT_FALSE(say(idle, "421 idle too long\r\n"));
  Session content_for_nobody = open(true);
  content_for_nobody.begin(Envelope{.from = "a@b", .to = {"u1@d"}, .size = 1}, at_);
  EXPECT_FALSE(say(content_for_nobody, "250 ok\r\n550 no\r\n354 go\r\n"));
  EXPECT_EQ(results(content_for_nobody.abandon()), "refused 550,");
  Session early = open(true);
  early.begin(kTwo, at_);
  EXPECT_FALSE(say(early, "250 ok\r\n354 go\r\n"));
}

TEST_P(SessionTest, EachPhaseHasItsTime) {
  Session s({.hello = "me"}, at_);
  pass(3);
  ASSERT_TRUE(say(s, "220 here\r\n"));
  pass(4);
  ASSERT_TRUE(say(s, "250 here\r\n"));
  EXPECT_EQ(times(s), "connect 3,hello 4,");
  s.begin(kTwo, at_);
  pass(1);
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  pass(2);
  ASSERT_TRUE(say(s, "550 no\r\n"));
  pass(3);
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  pass(4);
  ASSERT_TRUE(say(s, "354 go\r\n"));
  EXPECT_EQ(times(s), "mail 1,rcpt 2!,rcpt 3,data 4,");
  pass(100);  // the content is on its way
  s.content_sent(at_);
  pass(5);
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  EXPECT_EQ(times(s), "message 5,");
  EXPECT_EQ(times(s), "");
}

TEST_P(SessionTest, AMessageIsASuccessIfEveryAcceptedRecipientIs) {
  Session s = open(true);
  times(s);
  s.begin(kTwo, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n"));
  content(s);
  pass(7);
  ASSERT_TRUE(say(s, "250 ok\r\n451 no\r\n"));
  EXPECT_EQ(times(s), "mail 0,rcpt 0,rcpt 0,data 0,message 7!,");
  s.take_results();
  s.begin(kTwo, at_);
  ASSERT_TRUE(say(s, "451 full\r\n503 no\r\n503 no\r\n503 no\r\n"));
  EXPECT_EQ(times(s), "mail 0!,rcpt 0!,rcpt 0!,data 0!,");
}

TEST_P(SessionTest, SmtpHasOneReplyForAllRecipients) {
  Session s({.protocol = Protocol::smtp, .hello = "me"}, at_);
  ASSERT_TRUE(say(s, "220 mx\r\n"));
  EXPECT_EQ(sent(s), "EHLO me\r\n");
  ASSERT_TRUE(say(s, "250-mx\r\n250 PIPELINING\r\n"));
  s.begin(kThree, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n250 1\r\n550 2\r\n250 3\r\n354 go\r\n"));
  content(s);
  ASSERT_TRUE(say(s, "250 queued\r\n"));
  ASSERT_TRUE(s.finished());
  EXPECT_EQ(results(s.take_results()), "acknowledged 250,refused 550,acknowledged 250,");
}

TEST_P(SessionTest, SmtpFallsBackToHelo) {
  Session s({.protocol = Protocol::smtp, .hello = "me"}, at_);
  ASSERT_TRUE(say(s, "220 old\r\n"));
  ASSERT_TRUE(say(s, "502 what?\r\n"));
  EXPECT_EQ(sent(s), "EHLO me\r\nHELO me\r\n");
  ASSERT_TRUE(say(s, "250 old\r\n"));
  EXPECT_TRUE(s.ready());
  Session lmtp({.hello = "me"}, at_);
  ASSERT_TRUE(say(lmtp, "220 old\r\n"));
  EXPECT_FALSE(say(lmtp, "502 what?\r\n"));
}

TEST_P(SessionTest, StarttlsIsDemandedAndForgetsTheFirstOffer) {
  Session s({.hello = "me", .starttls = true}, at_);
  ASSERT_TRUE(say(s, "220 here\r\n250-here\r\n250-PIPELINING\r\n250 STARTTLS\r\n"));
  EXPECT_EQ(sent(s), "LHLO me\r\nSTARTTLS\r\n");
  EXPECT_FALSE(s.handshake_wanted());
  ASSERT_TRUE(say(s, "220 go\r\n"));
  ASSERT_TRUE(s.handshake_wanted());
  pass(6);
  times(s);
  s.secured(at_);
  EXPECT_EQ(times(s), "starttls 6,");
  EXPECT_EQ(sent(s), "LHLO me\r\n");
  ASSERT_TRUE(say(s, "250 here, without pipelining\r\n"));
  EXPECT_TRUE(s.ready());
  EXPECT_FALSE(s.pipelining());

  Session lacks({.hello = "me", .starttls = true}, at_);
  Status status = say(lacks, "220 here\r\n250 here\r\n");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::invalid);
  Session refuses({.hello = "me", .starttls = true}, at_);
  status = say(refuses, "220 here\r\n250-here\r\n250 STARTTLS\r\n454 not now\r\n");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::unavailable);
}

// RFC 3207 section 5: what follows the reply in clear text would count as encrypted.
TEST_P(SessionTest, BytesBeforeTheHandshakeAreRefused) {
  Session s({.hello = "me", .starttls = true}, at_);
  ASSERT_TRUE(say(s, "220 here\r\n250-here\r\n250 STARTTLS\r\n"));
  EXPECT_FALSE(say(s, "220 go\r\n250 injected\r\n"));
}

TEST_P(SessionTest, ChunksAreSentAfterTheRecipients) {
  Session s({.hello = "me", .chunking = true}, at_);
  ASSERT_TRUE(say(s, "220 here\r\n250-here\r\n250-CHUNKING\r\n250-8BITMIME\r\n250 PIPELINING\r\n"));
  sent(s);
  Envelope three_chunks = kTwo;
  three_chunks.chunks = 3;
  three_chunks.eight_bit = true;
  s.begin(three_chunks, at_);
  EXPECT_EQ(sent(s), "MAIL FROM:<a@b> BODY=8BITMIME\r\nRCPT TO:<u1@d>\r\nRCPT TO:<u2@d>\r\n");
  ASSERT_TRUE(say(s, "250 ok\r\n250 ok\r\n"));
  EXPECT_FALSE(s.content_wanted());
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  ASSERT_TRUE(s.content_wanted());
  ASSERT_TRUE(say(s, "250 first chunk, while the others are sent\r\n"));
  content(s);
  ASSERT_TRUE(say(s, "250 second\r\n250 u1\r\n"));
  EXPECT_FALSE(s.finished());
  ASSERT_TRUE(say(s, "452 u2\r\n"));
  EXPECT_EQ(results(s.take_results()), "acknowledged 250,deferred 452,");

  // Without recipients there is nothing to send.
  s.begin(three_chunks, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n550 no\r\n550 no\r\n"));
  EXPECT_FALSE(s.content_wanted());
  EXPECT_TRUE(sent(s).ends_with("RSET\r\n"));
  ASSERT_TRUE(say(s, "250 ok\r\n"));
  EXPECT_EQ(results(s.take_results()), "refused 550,refused 550,");

  Session lacks({.hello = "me", .chunking = true}, at_);
  Status status = say(lacks, "220 here\r\n250 here\r\n");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::invalid);
}

TEST_P(SessionTest, ARefusedChunkEndsTheConnectionAndCountsForAll) {
  Session s({.hello = "me", .chunking = true}, at_);
  ASSERT_TRUE(say(s, "220 here\r\n250-here\r\n250-CHUNKING\r\n250 PIPELINING\r\n"));
  Envelope two_chunks = kTwo;
  two_chunks.chunks = 2;
  s.begin(two_chunks, at_);
  ASSERT_TRUE(say(s, "250 ok\r\n250 ok\r\n250 ok\r\n"));
  content(s);
  EXPECT_FALSE(say(s, "552 too big\r\n"));
  EXPECT_EQ(results(s.abandon()), "refused 552,refused 552,");
}

}  // namespace
}  // namespace twinloft::mailbench
