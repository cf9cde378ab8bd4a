// BDAT (RFC 3030), with the replies of RFC 2033 section 4.3.
#include <string>

#include "dialogue.h"

namespace twinloft::lmtpd::test {
namespace {

using namespace std::string_literals;

const std::string envelope = hello + "MAIL FROM:<a@d>\r\nRCPT TO:<b@d>\r\n";

class Chunking : public Dialogue {
 protected:
  // The replies after the replies to `envelope`.
  Codes after_envelope(std::string_view text) {
    Codes all = replies(envelope + std::string(text));
    EXPECT_EQ((Codes{all.begin(), all.begin() + 3}), (Codes{"250", "250 2.1.0", "250 2.1.5"}));
    return {all.begin() + 3, all.end()};
  }
};

TEST_F(Chunking, AMessage) {
  auto owner = run(envelope +
                   "BDAT 4\r\n1234BDAT 0\r\nbdat  9\r\n.\r\nQUIT\r\nBDAT 3 last \r\n\0\n.QUIT\r\n"s);
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "250 2.0.0", "250 2.0.0",
                                   "250 2.0.0", "250 2.0.0", "221 2.0.0"}));
  ASSERT_EQ(owner->messages.size(), 1u);
  EXPECT_EQ(owner->messages[0].text, "1234.\r\nQUIT\r\n\0\n."s)
      << "unchanged: no dot is removed, and no byte ends the data";
  EXPECT_EQ(owner->aborted, 0);
}

TEST_F(Chunking, TheLastChunkMayBeEmpty) {
  EXPECT_EQ(run(envelope + "BDAT 2\r\nhiBDAT 0 LAST\r\n")->messages.at(0).text, "hi");
  EXPECT_EQ(run(envelope + "BDAT 0 LAST\r\n")->messages.at(0).text, "");
}

TEST_F(Chunking, OneReplyForEachAcceptedRecipient) {
  EXPECT_EQ(after_envelope("RCPT TO:<nobody@d>\r\nRCPT TO:<b@d>\r\nBDAT 1\r\nxBDAT 1 LAST\r\nxNOOP\r\n"),
            (Codes{"550 5.1.1", "250 2.1.5", "250 2.0.0", "250 2.0.0", "250 2.0.0", "250 2.0.0"}));
}

TEST_F(Chunking, TheTransactionEndsWithTheLast) {
  EXPECT_EQ(after_envelope("BDAT 1 LAST\r\nxBDAT 1\r\nxRCPT TO:<b@d>\r\nMAIL FROM:<c@d>\r\n"),
            (Codes{"250 2.0.0", "503 5.5.1", "503 5.5.1", "250 2.1.0"}));
}

TEST_F(Chunking, WhatIsRefusedIsSkippedFirst) {
  EXPECT_EQ(replies("BDAT 6\r\nQUIT\r\nBDAT 6\r\nQUIT\r\nNOOP\r\n"),
            (Codes{"503 5.5.1", "503 5.5.1", "250 2.0.0"}));
  EXPECT_EQ(
      replies(hello +
              "MAIL FROM:<a@d>\r\nRCPT TO:<nobody@d>\r\nBDAT 6\r\nQUIT\r\nRCPT TO:<b@d>\r\nBDAT 1 LAST\r\nx"),
      (Codes{"250", "250 2.1.0", "550 5.1.1", "503 5.5.1", "250 2.1.5", "250 2.0.0"}))
      << "the transaction is still open";
}

// RFC 2033 section 4.3: one reply for each accepted recipient. A client that has pipelined the next MAIL
// would mistake an extra reply for the reply to MAIL.
TEST_F(Chunking, TheLastForNobodyHasNoReply) {
  for (std::string size : {"6 LAST\r\nQUIT\r\n", "0 LAST\r\n"}) {
    EXPECT_EQ(replies(hello + "MAIL FROM:<a@d>\r\nRCPT TO:<nobody@d>\r\nBDAT " + size +
                      "MAIL FROM:<b@d>\r\nRCPT TO:<b@d>\r\nBDAT 1 LAST\r\nx"),
              (Codes{"250", "250 2.1.0", "550 5.1.1", "250 2.1.0", "250 2.1.5", "250 2.0.0"}));
    EXPECT_EQ(replies(hello + "MAIL FROM:<a b@d>\r\nRCPT TO:<b@d>\r\nBDAT " + size + "MAIL FROM:<b@d>\r\n"),
              (Codes{"250", "501 5.1.7", "503 5.5.1", "250 2.1.0"}));
    EXPECT_EQ(replies("BDAT " + size + "NOOP\r\n"), (Codes{"250 2.0.0"}));
  }
}

TEST_F(Chunking, OtherCommandsInBetween) {
  EXPECT_EQ(
      after_envelope(
          "BDAT 1\r\nxDATA\r\nMAIL FROM:<c@d>\r\nRCPT TO:<c@d>\r\nNOOP\r\nVRFY x\r\nBDAT 1 LAST\r\ny"),
      (Codes{"250 2.0.0", "503 5.5.1", "503 5.5.1", "503 5.5.1", "250 2.0.0", "252 2.5.0", "250 2.0.0"}));
}

TEST_F(Chunking, ResetForgetsTheMessage) {
  for (std::string reset : {"RSET\r\n", "LHLO again\r\n"}) {
    auto owner = run(envelope + "BDAT 3\r\noneBDAT 3\r\ntwo" + reset +
                     "MAIL FROM:<a@d>\r\nRCPT TO:<b@d>\r\nBDAT 5 LAST\r\nthree");
    ASSERT_EQ(owner->messages.size(), 1u) << reset;
    EXPECT_EQ(owner->messages[0].text, "three");
    EXPECT_EQ(owner->aborted, 1);
  }
  EXPECT_EQ(run(envelope + "BDAT 3\r\noneQUIT\r\n")->aborted, 1);
}

TEST_F(Chunking, TooLarge) {
  config.message_bytes_max = 10;
  auto owner = run(
      envelope +
      "RCPT TO:<c@d>\r\nBDAT 10\r\n1234567890BDAT 6\r\nQUIT\r\nBDAT 1\r\nxBDAT 6 LAST\r\nQUIT\r\nNOOP\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "250 2.0.0",
                                   "552 5.3.4", "503 5.5.1", "552 5.3.4", "552 5.3.4", "250 2.0.0"}));
  EXPECT_EQ(owner->aborted, 1);
  EXPECT_TRUE(owner->messages.empty());
  EXPECT_EQ(after_envelope("BDAT 11 LAST\r\n12345678901NOOP\r\n"), (Codes{"552 5.3.4", "250 2.0.0"}));
  EXPECT_EQ(
      after_envelope(
          "BDAT 11\r\n12345678901RSET\r\nMAIL FROM:<a@d>\r\nRCPT TO:<b@d>\r\nBDAT 10 LAST\r\n1234567890"),
      (Codes{"552 5.3.4", "250 2.0.0", "250 2.1.0", "250 2.1.5", "250 2.0.0"}));
}

TEST_F(Chunking, SizesBeyondAllNumbers) {
  EXPECT_EQ(after_envelope("BDAT 18446744073709551615\r\nNOOP\r\n"), Codes()) << "the session keeps skipping";
  EXPECT_EQ(after_envelope("BDAT 1\r\nxBDAT 18446744073709551615\r\n"), (Codes{"250 2.0.0"}));
}

// The bytes after it could be data or commands.
TEST_F(Chunking, MalformedEndsTheConnection) {
  for (std::string line : {"BDAT", "BDAT x", "BDAT -1", "BDAT +1", "BDAT 0x10", "BDAT 1 FIRST",
                           "BDAT 1 LAST x", "BDAT 18446744073709551616", "BDAT 1.5"}) {
    auto owner = run(envelope + line + "\r\nNOOP\r\n");
    auto codes = owner->codes();
    EXPECT_EQ((Codes{codes.end() - 2, codes.end()}), (Codes{"501 5.5.4", "421 4.5.4"})) << line;
    EXPECT_TRUE(owner->session().closed());
  }
}

TEST_F(Chunking, ALineThatIsRefusedEndsTheConnectionToo) {
  for (std::string line : {"BDAT 6\nQUIT\r\n"s, "BDAT\nQUIT\r\n"s,
                           "bdat 6 " + std::string(command_line_bytes_max, 'x') + "\r\nQUIT\r\n"}) {
    auto owner = run(envelope + line + "NOOP\r\n");
    auto codes = owner->codes();
    EXPECT_EQ((Codes{codes.end() - 2, codes.end()}), (Codes{"500 5.5.2", "421 4.5.4"})) << line.substr(0, 20);
  }
}

TEST_F(Chunking, RefusedChunksOfAPipeliningClientAreNoBadCommands) {
  config.bad_commands_max = 3;
  std::string text = hello;
  for (int i = 0; i < 10; ++i)
    text += "MAIL FROM:<a@d>\r\nRCPT TO:<nobody@d>\r\nBDAT 1\r\nxBDAT 1 LAST\r\nxRSET\r\n";
  EXPECT_FALSE(run(text)->session().closed());
  EXPECT_TRUE(run(hello + "BDAT 1\r\nxBDAT 1\r\nxBDAT 1\r\nx")->session().closed());
}

TEST(ChunkingEvents, TheOwnerLosesTheMessageBetweenChunks) {
  Owner owner;
  owner.whole(envelope + "BDAT 1\r\nx");
  owner.lose_body();
  owner.whole("BDAT 1\r\nxBDAT 1\r\nxBDAT 1 LAST\r\nxNOOP\r\n");
  auto codes = owner.codes();
  EXPECT_EQ((Codes{codes.end() - 5, codes.end()}),
            (Codes{"250 2.0.0", "452 4.3.1", "503 5.5.1", "452 4.3.1", "250 2.0.0"}));
  EXPECT_TRUE(owner.messages.empty());
  EXPECT_EQ(owner.aborted, 1);
}

TEST(ChunkingEvents, TheEndBetweenChunksAndWithinOne) {
  for (const char* text : {"BDAT 1\r\nx", "BDAT 5\r\nx"}) {
    Owner idle, leaving;
    idle.whole(envelope + text);
    idle.idle_timeout();
    EXPECT_EQ(idle.codes().back(), "421 4.4.2");
    EXPECT_EQ(idle.aborted, 1);
    leaving.whole(envelope + text);
    leaving.shutdown();
    EXPECT_EQ(leaving.codes().back(), "421 4.3.2");
    EXPECT_EQ(leaving.aborted, 1);
  }
}

}  // namespace
}  // namespace twinloft::lmtpd::test
