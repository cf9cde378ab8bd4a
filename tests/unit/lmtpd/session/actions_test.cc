// The order of a session's actions, and questions with their answers.
#include "owner.h"

namespace twinloft::lmtpd::test {
namespace {

// One word for each action, in order: "Send", "Begin 0", "Body abc".
std::string text_of(const Actions& actions) {
  std::string out;
  for (const Action& action : actions)
    out += std::visit(Visitor{[](const SendBytes& s) { return "Send " + s.bytes.substr(0, 3); },
                              [](const Refused& r) { return "Refused " + std::to_string(r.reply.code); },
                              [](const BeginBody& b) { return "Begin " + std::to_string(b.size_hint); },
                              [](const BodyBytes& b) {
                                std::string body = "Body ";
                                for (ByteSpan piece : b.pieces) body += as_text(piece);
                                return body;
                              },
                              [](AbortBody) { return std::string("Abort"); },
                              [](const Ask& a) { return "Ask " + std::to_string(a.id); },
                              [](const Deliver& d) {
                                return "Deliver " + std::to_string(d.envelope->recipients.size());
                              },
                              [](ForgetTransaction) { return std::string("Forget"); },
                              [](BeginTls) { return std::string("Tls"); },
                              [](Close) { return std::string("Close"); }},
                      action) +
           "; ";
  return out;
}

class ActionsTest : public testing::Test {
 protected:
  ActionsTest() {
    config_.hostname = "h";
    config_.new_id = [] { return std::string("id"); };
    config_.message_bytes_max = 20;
    session_.start({"192.0.2.7"});
    (void)take(session_);
  }
  std::string after(std::string_view bytes) {
    session_.receive(as_bytes(bytes));
    return text_of(take(session_));
  }
  std::string after_answer(QuestionId id) {
    User user;
    user.name = "ann";
    session_.answer(id, Resolved{user});
    return text_of(take(session_));
  }

  SessionConfig config_;
  Session session_{config_};
};

TEST_F(ActionsTest, AMessageInOneList) {
  EXPECT_EQ(after(std::string(opening) + "RCPT TO:<ann@d>\r\nDATA\r\nabc\r\n.\r\nQUIT\r\n"),
            "Send 250; Ask 1; ");
  EXPECT_EQ(after_answer(1), "Send 250; Begin 0; Send 354; Body abc\r\n; Deliver 1; ");
  session_.delivery_done(0, {250, "2.0.0", "delivered"});
  EXPECT_EQ(text_of(take(session_)), "Send 250; Close; ");
}

// Each chunk's bytes come before its reply.
TEST_F(ActionsTest, ChunksAndTheirReplies) {
  (void)after(std::string(opening) + "RCPT TO:<ann@d>\r\n");
  (void)after_answer(1);
  EXPECT_EQ(after("BDAT 2\r\nabBDAT 1\r\ncBDAT 0 LAST\r\n"),
            "Begin 0; Body ab; Send 250; Body c; Send 250; Deliver 1; ");
}

// The bytes of an abandoned message are not passed on.
TEST_F(ActionsTest, AMessageThatIsTooLargeWithinOneList) {
  (void)after(std::string(opening) + "RCPT TO:<ann@d>\r\n");
  (void)after_answer(1);
  EXPECT_EQ(after("DATA\r\n0123456789\r\n0123456789\r\n.\r\n"),
            "Begin 0; Send 354; Abort; Send 552; Refused 552; ");
}

TEST_F(ActionsTest, AnAnswerCountsForItsQuestionOnly) {
  (void)after(std::string(opening) + "RCPT TO:<ann@d>\r\nRCPT TO:<ann@d>\r\n");
  EXPECT_EQ(after_answer(2), "") << "not asked yet";
  EXPECT_EQ(after_answer(0), "");
  EXPECT_FALSE(session_.waits_for_client());
  EXPECT_EQ(after_answer(1), "Send 250; Ask 2; ");
  EXPECT_EQ(after_answer(1), "") << "a repeated answer must not count for the next question";
  EXPECT_EQ(after_answer(2), "Send 250; ");
  EXPECT_EQ(after_answer(2), "") << "no question is open";
  EXPECT_TRUE(session_.waits_for_client());
}

TEST_F(ActionsTest, AnAnswerAfterTheEndChangesNothing) {
  (void)after(std::string(opening) + "RCPT TO:<ann@d>\r\n");
  session_.abort();
  EXPECT_EQ(text_of(take(session_)), "Send 421; Close; ");
  EXPECT_EQ(after_answer(1), "");
  EXPECT_TRUE(session_.closed());
}

// Alternating between two lists allocates no memory, and the memory of a burst is freed.
TEST_F(ActionsTest, TheListsMemoryIsUsedAgainAndBounded) {
  Actions actions;
  std::string refused;
  for (int i = 0; i < 19; ++i) refused += "MAIL FROM:<" + std::string(i, '(') + ">\r\n";
  session_.receive(as_bytes(refused));
  session_.take_actions(actions);
  EXPECT_GT(actions.capacity(), 16u) << "the burst is large enough";
  session_.take_actions(actions);
  EXPECT_TRUE(actions.empty());
  session_.receive(as_bytes("NOOP\r\n"));
  session_.take_actions(actions);
  session_.take_actions(actions);
  EXPECT_LE(actions.capacity(), 16u);
}

TEST(KeptInput, IsLookedAtFromItsFront) {
  KeptInput kept;
  EXPECT_TRUE(kept.empty());
  kept.append(as_bytes("abcdef"));
  kept.leave(2);
  EXPECT_EQ(as_text(kept.rest()), "ef");
  kept.append(as_bytes("g"));
  EXPECT_EQ(as_text(kept.rest()), "efg");
  kept.leave(0);
  EXPECT_TRUE(kept.empty());
  kept.assign(as_bytes("xy"));
  EXPECT_EQ(as_text(kept.rest()), "xy");
}

TEST(KeptInput, GivesTheMemoryOfABurstBack) {
  KeptInput kept;
  kept.append(as_bytes(std::string(100'000, 'x')));
  EXPECT_GE(kept.memory(), 100'000u);
  kept.forget();
  EXPECT_EQ(kept.memory(), 0u);
  kept.append(as_bytes("xy"));
  kept.forget();
  EXPECT_TRUE(kept.empty());
  EXPECT_GE(kept.memory(), 2u) << "a small buffer is kept for the next input";
}

}  // namespace
}  // namespace twinloft::lmtpd::test
