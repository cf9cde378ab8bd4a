// Events in unusual orders, as they happen under load and after failures.
#include "owner.h"

namespace twinloft::lmtpd::test {
namespace {

using Codes = std::vector<std::string>;
constexpr std::string_view two_recipients = "RCPT TO:<a@d>\r\nRCPT TO:<b@d>\r\n";

const Reply ok{250, "2.0.0", "ok"};
const Reply later{451, "4.3.0", "later"};

TEST(EventOrder, NothingIsReadPastACommandWhoseAnswerIsPending) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<nobody@d>\r\nRCPT TO:<b@d>\r\nQUIT\r\n");
  EXPECT_EQ(owner.codes(), (Codes{"220", "250", "250 2.1.0"}));
  EXPECT_EQ(owner.lookups.size(), 1u);
  EXPECT_FALSE(owner.session().waits_for_client());
  owner.answer_lookup();
  EXPECT_EQ(owner.codes().back(), "550 5.1.1");
  EXPECT_EQ(owner.lookups.size(), 1u);
  owner.answer_lookup();
  EXPECT_EQ(owner.codes(), (Codes{"220", "250", "250 2.1.0", "550 5.1.1", "250 2.1.5", "221 2.0.0"}));
}

TEST(EventOrder, InputThatArrivesWhileAnAnswerIsPendingIsKeptInOrder) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\nRCPT TO:<n");
  owner.trickle("obody@d>\r\nDATA\r\nSubj");
  owner.answer_lookup();
  owner.answer_lookup();
  owner.trickle("ect: x\r\n.\r\nQU");
  ASSERT_EQ(owner.messages.size(), 1u);
  EXPECT_EQ(owner.messages[0].text, "Subject: x\r\n");
  owner.trickle("IT\r\n");
  EXPECT_EQ(owner.codes().back(), "354");
  owner.finish(0, ok);
  EXPECT_EQ(owner.codes(),
            (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "550 5.1.1", "354", "250 2.0.0", "221 2.0.0"}));
}

TEST(EventOrder, AMailboxIsAskedForOnceTheUserIsKnown) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<roomy@d>\r\nRCPT TO:<ov");
  EXPECT_TRUE(owner.mailboxes.empty());
  ASSERT_EQ(owner.lookups.size(), 1u);
  const QuestionId lookup = owner.lookups.front().id;
  owner.answer_lookup();
  ASSERT_EQ(owner.mailboxes.size(), 1u);
  EXPECT_TRUE(owner.lookups.empty());
  EXPECT_FALSE(owner.session().waits_for_client());
  owner.idle_timeout();  // the session waits for the deliveries, not for the client
  owner.session().answer(lookup, LookupResult(fail(Errc::unavailable, "late")));
  owner.trickle("er@d>\r\nQUIT\r\n");
  EXPECT_EQ(owner.codes(), (Codes{"220", "250", "250 2.1.0"}));
  owner.answer_mailbox();
  EXPECT_EQ(owner.codes().back(), "250 2.1.5");
  owner.answer_lookup();
  owner.answer_mailbox();
  EXPECT_EQ(owner.codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "552 5.2.2", "221 2.0.0"}));
}

TEST(EventOrder, AnAnswerOfAnotherKindThanItsQuestionIsTheOwnersDefect) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<roomy@d>\r\n");
  ASSERT_EQ(owner.lookups.size(), 1u);
  EXPECT_THROW(owner.session().answer(owner.lookups.front().id, MailboxState{}), std::logic_error);
}

TEST(EventOrder, AServerThatLeavesWaitsForTheMailboxUnlessItIsAborted) {
  for (bool abort : {false, true}) {
    Owner owner;
    owner.answering = false;
    owner.whole(std::string(opening) + "RCPT TO:<roomy@d>\r\n");
    owner.shutdown();
    owner.answer_lookup();
    EXPECT_FALSE(owner.session().closed());
    if (abort) owner.abort();
    owner.answer_mailbox();
    Codes expected{"220", "250", "250 2.1.0", "250 2.1.5", "421 4.3.2"};
    if (abort) expected.erase(expected.begin() + 3);
    EXPECT_EQ(owner.codes(), expected);
    EXPECT_TRUE(owner.session().closed());
  }
}

// A client may send any amount ahead. The session says when it wants no more input.
TEST(EventOrder, PendingInputIsBounded) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
  std::string noops;
  for (int i = 0; i < 1000; ++i) noops += "NOOP\r\n";
  std::size_t given = 0;
  while (owner.session().wants_input() && given < (64u << 20)) {
    owner.receive(noops);
    given += noops.size();
  }
  EXPECT_LT(given, 1u << 20);
  EXPECT_GE(given, 2048u) << "a pipelined envelope has room";
  owner.answer_lookup();
  EXPECT_TRUE(owner.session().wants_input());
  EXPECT_EQ(owner.codes().size(), 4 + given / 6) << "no reply is lost";
}

TEST(EventOrder, ABurstsMemoryIsGivenBack) {
  for (const char* tail : {"", "MAIL FR"}) {
    Owner owner;
    owner.answering = false;
    owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
    std::string noops;
    for (int i = 0; i < 20'000; ++i) noops += "NOOP\r\n";
    owner.receive(noops + tail);
    EXPECT_GE(owner.session().input_memory(), noops.size());
    owner.answer_lookup();
    owner.receive(*tail ? "OM:<a@d>\r\n" : "NOOP\r\n");
    owner.receive("NOOP\r\n");
    EXPECT_LE(owner.session().input_memory(), 4096u) << tail;
  }
}

// Short commands have long replies. Unsent replies must not grow with the input.
TEST(EventOrder, RepliesAreBoundedUntilTheyAreTaken) {
  std::string hellos;
  for (int i = 0; i < 4000; ++i) hellos += "LHLO c\r\n";
  Owner all;
  all.whole(hellos);
  EXPECT_EQ(all.codes().size(), 4001u);

  Owner owner;
  Session& s = owner.session();
  s.receive(as_bytes(hellos));
  std::string sent;
  std::size_t rounds = 0;
  for (; rounds < 4000; ++rounds) {
    std::string more = sent_by(take(s));
    EXPECT_LT(more.size(), 17u * 1024);
    sent += more;
    if (!s.holds_back()) break;
    EXPECT_FALSE(s.wants_input());
    EXPECT_TRUE(take(s).empty()) << "the session waits for the owner";
    s.replies_sent();
  }
  EXPECT_GT(rounds, 10u);
  EXPECT_EQ(owner.sent + sent, all.sent);
  EXPECT_TRUE(s.wants_input());
}

// Also if other commands of the client are executed after each look-up.
TEST(EventOrder, RepliesAreBoundedAcrossLookUps) {
  Owner owner;
  Session& s = owner.session();
  owner.whole(opening);
  std::string text;
  for (int i = 0; i < 50; ++i) {
    text += "RCPT TO:<a@d>\r\n";
    for (int n = 0; n < 50; ++n) text += "HELP\r\n";
  }
  s.replies_sent();
  s.receive(as_bytes(text));
  std::size_t unsent = 0;
  for (;;) {
    Actions actions = take(s);
    const Ask* ask = find<Ask>(actions);
    if (!ask) break;
    unsent += sent_by(actions).size();
    s.answer(ask->id, LookupResult(std::nullopt));
  }
  EXPECT_TRUE(s.holds_back());
  EXPECT_LT(unsent, 17u * 1024);
}

// The session does not keep the bytes of a message, and never delays them.
TEST(EventOrder, CommandsAreReadInSmallPortionsAndMessagesInLargeOnes) {
  Owner owner;
  owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
  EXPECT_LE(owner.session().wants(), 16u * 1024);
  owner.whole("DATA\r\n");
  EXPECT_EQ(owner.session().wants(), 64u * 1024);
  owner.whole("x\r\n.\r\nMAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\nBDAT 5 LAST\r\n1");
  EXPECT_EQ(owner.session().wants(), 16u * 1024 + 4);
  owner.whole("2345NOO");
  EXPECT_EQ(owner.session().wants(), 16u * 1024 - 3);
}

TEST(EventOrder, RecipientsAreCharged) {
  MemoryBudget budget(4096);
  SessionConfig config;
  config.memory = &budget;
  std::uint64_t of_one;
  {
    Owner owner(config);
    owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
    of_one = budget.used();
    EXPECT_GT(of_one, 512u);
    for (int i = 0; i < 10; ++i) owner.whole("RCPT TO:<a@d>\r\n");
    EXPECT_EQ(owner.codes().back(), "452 4.3.1");
    EXPECT_LE(budget.used(), 4096u);
    std::uint64_t full = budget.used();
    owner.whole("RCPT TO:<a@d>\r\n");
    EXPECT_EQ(budget.used(), full) << "a refused message costs nothing";
    owner.whole("RSET\r\n");
    EXPECT_EQ(budget.used(), 0u);
    owner.whole("MAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\nDATA\r\nx\r\n.\r\n");
    EXPECT_EQ(owner.messages.size(), 1u);
    EXPECT_EQ(budget.used(), of_one) << "the delivery holds the message's budget";
    owner.messages.clear();
    EXPECT_EQ(budget.used(), 0u);
    owner.whole("MAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\n");
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(EventOrder, RepliesFollowTheRecipientsWhoeverIsDoneFirst) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + std::string(two_recipients));
  owner.answer_lookup();
  owner.answer_lookup();
  owner.whole("DATA\r\nx\r\n.\r\n");
  ASSERT_EQ(owner.messages.size(), 1u);
  owner.finish(1, later);
  EXPECT_EQ(owner.codes().back(), "354") << "the replies are in the order of the recipients";
  owner.finish(0, ok);
  Codes codes = owner.codes();
  EXPECT_EQ(Codes(codes.end() - 2, codes.end()), (Codes{"250 2.0.0", "451 4.3.0"}));
}

TEST(EventOrder, AnAnswerGivenTwiceOrForNobodyChangesNothing) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + std::string(two_recipients));
  owner.answer_lookup();
  owner.answer_lookup();
  owner.session().answer(2, LookupResult(std::nullopt));
  owner.whole("DATA\r\nx\r\n.\r\n");
  owner.finish(0, ok);
  owner.finish(0, later);
  owner.finish(7, later);
  owner.finish(1, ok);
  owner.finish(1, later);
  EXPECT_EQ(owner.codes(),
            (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "354", "250 2.0.0", "250 2.0.0"}));
}

TEST(EventOrder, ALostBodyIsToldToEachRecipientAfterTheDot) {
  Owner owner;
  owner.whole(std::string(opening) + std::string(two_recipients) + "DATA\r\nhalf of ");
  owner.lose_body();
  EXPECT_EQ(owner.codes().back(), "354") << "the client is still sending: no reply before the dot";
  owner.trickle("the message\r\n.\r\nNOOP\r\n");
  Codes codes = owner.codes();
  EXPECT_EQ(Codes(codes.end() - 3, codes.end()), (Codes{"452 4.3.1", "452 4.3.1", "250 2.0.0"}));
  EXPECT_TRUE(owner.messages.empty());
  EXPECT_EQ(owner.aborted, 1);
}

// The owner may detect the failure only with the last bytes, at the end of the data.
TEST(EventOrder, ABodyLostWithItsLastBytes) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + std::string(two_recipients));
  owner.answer_lookup();
  owner.answer_lookup();
  owner.whole("DATA\r\n");
  owner.session().receive(as_bytes("all of it\r\n.\r\nNOOP\r\n"));
  EXPECT_TRUE(find<Deliver>(take(owner.session())));
  owner.lose_body();
  Codes codes = owner.codes();
  EXPECT_EQ(Codes(codes.end() - 3, codes.end()), (Codes{"452 4.3.1", "452 4.3.1", "250 2.0.0"}));
}

TEST(EventOrder, IdleTimeout) {
  Owner owner;
  owner.whole(opening);
  owner.idle_timeout();
  EXPECT_EQ(owner.codes().back(), "421 4.4.2");
  EXPECT_TRUE(owner.session().closed());
  EXPECT_FALSE(owner.session().wants_input());
}

TEST(EventOrder, AMessageThatTakesTooLong) {
  Owner owner;
  owner.whole("LHLO c\r\n");
  owner.session().transaction_timeout();
  owner.carry_out();
  EXPECT_FALSE(owner.session().closed()) << "there is no message";
  EXPECT_EQ(owner.session().transaction(), 0u);
  owner.whole("MAIL FROM:<a@d>\r\nRCPT TO:<b@d>\r\nDATA\r\n.\r\nMAIL FROM:<a@d>\r\n");
  EXPECT_EQ(owner.session().transaction(), 2u) << "each is a different message";
  owner.whole("RCPT TO:<b@d>\r\nDATA\r\nSubject: x\r\n");
  owner.session().transaction_timeout();
  owner.carry_out();
  EXPECT_EQ(owner.codes().back(), "421 4.4.2");
  EXPECT_EQ(owner.aborted, 1);
}

TEST(EventOrder, IdleWithinAMessageForgetsIt) {
  Owner owner;
  owner.whole(std::string(opening) + std::string(two_recipients) + "DATA\r\nhalf");
  EXPECT_TRUE(owner.session().waits_for_client());
  owner.idle_timeout();
  EXPECT_EQ(owner.codes().back(), "421 4.4.2");
  EXPECT_EQ(owner.aborted, 1);
  EXPECT_TRUE(owner.messages.empty());
}

// If a 421 took the place of a recipient's reply, the client would send the message again, and the message
// would be delivered twice.
TEST(EventOrder, NoIdleTimeoutWhileThisServerIsWaitedFor) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
  owner.idle_timeout();
  EXPECT_FALSE(owner.session().closed());
  owner.answer_lookup();
  owner.whole("DATA\r\nx\r\n.\r\n");
  owner.idle_timeout();
  EXPECT_FALSE(owner.session().closed());
  owner.finish(0, ok);
  EXPECT_EQ(owner.codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "354", "250 2.0.0"}));
  owner.idle_timeout();
  EXPECT_EQ(owner.codes().back(), "421 4.4.2");
}

// A message that begins in the kept input is not copied once the kept input is used up.
TEST(EventOrder, BodyBytesAreNotCopiedAfterKeptInputIsUsedUp) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\nDATA\r\nbegins ahead, ");
  owner.answer_lookup();
  std::string_view more = "goes on";
  for (int i = 0; i < 2; ++i) {
    owner.session().receive(as_bytes(more));
    Actions actions = take(owner.session());
    const BodyBytes* body = find<BodyBytes>(actions);
    ASSERT_TRUE(body && body->pieces.size() == 1);
    EXPECT_EQ(as_text(body->pieces[0]), more);
    EXPECT_EQ(static_cast<const void*>(body->pieces[0].data()), static_cast<const void*>(more.data()));
  }
  owner.whole("\r\n.\r\n");
  ASSERT_EQ(owner.messages.size(), 1u);
  EXPECT_EQ(owner.messages[0].text, "begins ahead, \r\n") << "the bytes above were counted elsewhere";
}

TEST(EventOrder, ShutdownWhileIdleOrReceiving) {
  for (std::string_view text :
       {"", "LHLO c\r\n", "LHLO c\r\nMAIL FROM:<a@d>\r\nRCPT TO:<a@d>\r\nDATA\r\nhalf"}) {
    Owner owner;
    if (!text.empty()) owner.whole(text);
    owner.shutdown();
    EXPECT_EQ(owner.codes().back(), "421 4.3.2");
    EXPECT_TRUE(owner.session().closed());
    owner.receive("\r\n.\r\n");
    EXPECT_EQ(owner.codes().back(), "421 4.3.2");
    EXPECT_TRUE(owner.messages.empty());
  }
}

TEST(EventOrder, ShutdownAnswersWhatIsBeingDelivered) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + std::string(two_recipients));
  owner.answer_lookup();
  owner.answer_lookup();
  owner.whole("DATA\r\nx\r\n.\r\nMAIL FROM:<b@d>\r\n");
  owner.shutdown();
  EXPECT_FALSE(owner.session().closed());
  owner.finish(0, ok);
  EXPECT_FALSE(owner.session().closed());
  owner.finish(1, later);
  Codes codes = owner.codes();
  EXPECT_EQ(Codes(codes.end() - 3, codes.end()), (Codes{"250 2.0.0", "451 4.3.0", "421 4.3.2"}));
  EXPECT_TRUE(owner.session().closed());
}

TEST(EventOrder, ShutdownDuringALookUpEndsWithItsAnswer) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + std::string(two_recipients));
  owner.shutdown();
  if (!owner.session().closed()) owner.answer_lookup();
  EXPECT_EQ(owner.codes().back(), "421 4.3.2");
  EXPECT_TRUE(owner.session().closed());
  EXPECT_TRUE(owner.lookups.empty()) << "no further question is asked";
}

TEST(EventOrder, DrainLeavesAtOnceWhereNoTransactionIsOpen) {
  for (std::string_view text :
       {"", "LHLO c\r\n", "LHLO c\r\nMAIL FROM:<a@d>\r\nRSET\r\n", "LHLO c\r\nMAIL FROM:<a@d> BAD\r\nNOO"}) {
    Owner owner;
    if (!text.empty()) owner.whole(text);
    owner.drain();
    EXPECT_EQ(owner.codes().back(), "421 4.3.2") << text;
    EXPECT_TRUE(owner.session().closed());
  }
}

TEST(EventOrder, DrainLetsATransactionEnd) {
  for (std::size_t cut : {0u, 1u, 2u, 3u}) {
    Owner owner;
    std::vector<std::string> steps{"RCPT TO:<a@d>\r\n", "DATA\r\n", "x\r\n", ".\r\nMAIL FROM:<b@d>\r\n"};
    owner.whole("LHLO c\r\nMAIL FROM:<a@d>\r\n");
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i == cut) owner.drain();
      EXPECT_FALSE(owner.session().closed());
      owner.whole(steps[i]);
    }
    EXPECT_EQ(owner.messages.size(), 1u);
    Codes codes = owner.codes();
    EXPECT_EQ(Codes(codes.end() - 2, codes.end()), (Codes{"250 2.0.0", "421 4.3.2"}));
    EXPECT_TRUE(owner.session().closed());
  }
}

TEST(EventOrder, DrainEndsWithTheTransactionHoweverThatEnds) {
  for (std::string_view end : {"RSET\r\n", "LHLO again\r\n"}) {
    Owner owner;
    owner.whole("LHLO c\r\nMAIL FROM:<a@d>\r\n");
    owner.drain();
    owner.whole(std::string(end) + "MAIL FROM:<b@d>\r\n");
    EXPECT_EQ(owner.codes().back(), "421 4.3.2") << end;
    EXPECT_TRUE(owner.session().closed());
  }
}

TEST(EventOrder, DrainDuringALookUpAndADelivery) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
  owner.drain();
  owner.answer_lookup();
  EXPECT_FALSE(owner.session().closed());
  owner.whole("DATA\r\nx\r\n.\r\n");
  owner.drain();
  EXPECT_FALSE(owner.session().closed());
  owner.finish(0, ok);
  Codes codes = owner.codes();
  EXPECT_EQ(Codes(codes.end() - 2, codes.end()), (Codes{"250 2.0.0", "421 4.3.2"}));
}

// A chunk that is being skipped gets its own reply before the 421.
TEST(EventOrder, DrainDuringAChunkThatIsSkipped) {
  Owner owner;
  owner.whole("LHLO c\r\nBDAT 10\r\n12345");
  owner.drain();
  EXPECT_FALSE(owner.session().closed());
  owner.whole("67890");
  Codes codes = owner.codes();
  EXPECT_EQ(Codes(codes.end() - 2, codes.end()), (Codes{"503 5.5.1", "421 4.3.2"}));
}

TEST(EventOrder, AbortWaitsForNothing) {
  Owner owner;
  owner.answering = false;
  owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
  owner.abort();
  EXPECT_EQ(owner.codes().back(), "421 4.3.2");
  owner.answer_lookup();
  EXPECT_EQ(owner.codes().back(), "421 4.3.2");
}

TEST(EventOrder, TheEnvelopeOutlivesTheSession) {
  std::shared_ptr<const Envelope> envelope;
  {
    Owner owner;
    owner.answering = false;
    owner.whole(std::string(opening) + "RCPT TO:<a@d>\r\n");
    owner.answer_lookup();
    owner.whole("DATA\r\nx\r\n.\r\n");
    envelope = owner.messages.at(0).envelope;
  }
  EXPECT_EQ(envelope->recipients.at(0).text, "a@d");
}

}  // namespace
}  // namespace twinloft::lmtpd::test
