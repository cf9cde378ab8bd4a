// Exit codes and output lines as replies (docs/lmtpd.md).

#include "../support/fixture.h"
#include "twinloft/lmtpd/agents/external.h"

namespace twinloft::lmtpd {
namespace {

using End = RunResult::End;

AgentSpec spec() {
  AgentSpec s;
  s.name = "agent";
  s.command = "/bin/true";
  return s;
}

Reply of(End end, int value, std::string output = {}, bool read = true) {
  return reply_of_run(spec(), {end, value, std::move(output)}, read);
}

TEST(ExitMap, IsThatOfTheDesign) {
  struct Expected {
    int exit;
    int code;
    const char* enhanced;
  };
  for (auto [exit, code, enhanced] : {Expected{0, 250, "2.0.0"},
                                      {64, 451, "4.3.5"},
                                      {78, 451, "4.3.5"},
                                      {126, 451, "4.3.5"},
                                      {127, 451, "4.3.5"},
                                      {65, 554, "5.6.0"},
                                      {67, 451, "4.3.0"},
                                      {69, 554, "5.3.0"},
                                      {70, 554, "5.3.0"},
                                      {71, 451, "4.3.0"},
                                      {74, 451, "4.3.0"},
                                      {75, 451, "4.3.0"},
                                      {73, 451, "4.2.0"},
                                      {77, 550, "5.7.1"},
                                      {1, 451, "4.3.0"},
                                      {66, 451, "4.3.0"},
                                      {255, 451, "4.3.0"}}) {
    Reply reply = of(End::exited, exit);
    EXPECT_EQ(reply.code, code) << exit;
    EXPECT_EQ(reply.enhanced, enhanced) << exit;
  }
}

TEST(ExitMap, TakesOnlyRepliesWhoseClassFits) {
  ExitMap map;
  ASSERT_TRUE(map.set(99, "550 5.2.2").has_value());
  EXPECT_EQ(map.of(99), (ExitReply{550, "5.2.2"}));
  for (const char* bad : {"", "250", "250 5.0.0", "251 2.0.0", "450 4.2", "450 4.2.2.2", "999 9.0.0",
                          "45 4.0.0", "4500 4.0.0", "350 3.0.0", "450 4.1000.0", "450 4.2.x"})
    EXPECT_FALSE(map.set(99, bad).has_value()) << bad;
  EXPECT_FALSE(map.set(256, "550 5.2.2").has_value());
  EXPECT_FALSE(map.set(-1, "550 5.2.2").has_value());
}

TEST(AgentReply, EverythingButAnExitIsTemporary) {
  for (End end : {End::signalled, End::timed_out, End::busy, End::unkillable, End::lost}) {
    Reply reply = of(end, 11);
    EXPECT_EQ(reply.code, 451);
    EXPECT_EQ(reply.enhanced, "4.3.0");
  }
  EXPECT_EQ(of(End::refused, 0).enhanced, "4.3.5");
  EXPECT_EQ(of(End::not_started, ENOENT).enhanced, "4.3.5");
  EXPECT_EQ(of(End::not_started, EACCES).enhanced, "4.3.5");
  for (int sys : {ENOMEM, EMFILE, ENFILE}) EXPECT_EQ(of(End::not_started, sys).enhanced, "4.3.2");
  EXPECT_EQ(of(End::not_started, EAGAIN).code, 451);
}

TEST(AgentReply, UnreadStdinIsNoDelivery) {
  EXPECT_EQ(of(End::exited, 0, "", false).code, 451);
  EXPECT_EQ(of(End::exited, 77, "", false).code, 550);  // a refusal without a message is valid
  AgentSpec lenient = spec();
  lenient.must_read_stdin = false;
  EXPECT_EQ(reply_of_run(lenient, {End::exited, 0, {}}, false).code, 250);
}

TEST(AgentReply, TheLastOutputLineIsItsText) {
  EXPECT_EQ(of(End::exited, 77, "first\nMailbox is closed\r\n \n").text, "Mailbox is closed");
  EXPECT_EQ(of(End::exited, 75).text, "Delivery agent agent ended with 75");
  EXPECT_EQ(of(End::exited, 0).text, "Delivered by agent");
  EXPECT_EQ(of(End::exited, 75, "a\x01\x1b[31m\xff b\tc").text, "a??[31m? b c");
  EXPECT_EQ(of(End::exited, 75, std::string(5000, 'x')).text.size(), 400u);
  EXPECT_EQ(of(End::exited, 75, std::string("a\0b", 3)).text, "a?b");
}

TEST(AgentReply, AnEnhancedCodeAtItsStartWins) {
  Reply full = of(End::exited, 77, "5.2.2 Mailbox full\n");
  EXPECT_EQ(full.enhanced, "5.2.2");
  EXPECT_EQ(full.text, "Mailbox full");
  EXPECT_EQ(full.code, 550);
  for (const char* none : {"5.2 x", "5.2.2x", "5.2.2222 x", "52.2.2 x", "5..2 x", "5.2.", "5."})
    EXPECT_EQ(of(End::exited, 77, none).enhanced, "5.7.1") << none;
  EXPECT_EQ(of(End::exited, 77, "5.2.2").text, "Delivery agent agent ended with 77");
}

TEST(AgentReply, AnEnhancedCodeDecidesWhetherAFailureIsForGood) {
  EXPECT_EQ(of(End::exited, 75, "5.1.1 no such user\n"), (Reply{550, "5.1.1", "no such user"}));
  EXPECT_EQ(of(End::exited, 67, "4.2.1 back soon\n"), (Reply{451, "4.2.1", "back soon"}));
  EXPECT_EQ(of(End::exited, 65, "5.6.1\n"), (Reply{554, "5.6.1", "Delivery agent agent ended with 65"}));
}

TEST(AgentReply, AnEnhancedCodeMakesNoSuccessOfAFailureAndNoFailureOfASuccess) {
  EXPECT_EQ(of(End::exited, 75, "2.0.0 all is well\n"), (Reply{451, "4.3.0", "all is well"}));
  EXPECT_EQ(of(End::exited, 67, "2.1.5 ok\n"), (Reply{451, "4.3.0", "ok"}));
  for (const char* line : {"5.2.2 full\n", "4.2.2 full\n"})
    EXPECT_EQ(of(End::exited, 0, line), (Reply{250, "2.0.0", "full"}))
        << "the message is delivered, so there must be no bounce";
  EXPECT_EQ(of(End::exited, 0, "2.1.5 stored\n"), (Reply{250, "2.1.5", "stored"}));
}

}  // namespace
}  // namespace twinloft::lmtpd
