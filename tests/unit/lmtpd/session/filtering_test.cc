// A session with filters: what it asks them, and what it does with their verdicts.
#include <gtest/gtest.h>

#include "dialogue.h"

namespace twinloft::lmtpd::test {
namespace {

std::string name_of(const FilterCommand& command) {
  return std::visit(
      Visitor{[](const FilterMail& m) { return "MAIL " + m.envelope->from; },
              [](const FilterRcpt& r) { return (r.refused ? "refused " : "RCPT ") + r.recipient; },
              [](const FilterData&) { return std::string("DATA"); }},
      command);
}

class SessionFilters : public Dialogue {
 protected:
  SessionFilters() {
    config.has_filters = true;
    prepare = [this](Owner& owner) {
      owner.filter = [this](const FilterCommand& command) {
        auto found = verdicts.find(name_of(command));
        return found == verdicts.end() ? FilterVerdict{} : found->second;
      };
    };
  }
  static std::vector<std::string> names(const Owner& owner) {
    std::vector<std::string> out;
    for (const FilterCommand& command : owner.all_filter_asks) out.push_back(name_of(command));
    return out;
  }
  std::map<std::string, FilterVerdict> verdicts;
};

const std::string message = "MAIL FROM:<a@d>\r\nRCPT TO:<u@d>\r\nRCPT TO:<v@d>\r\nDATA\r\n";

TEST_F(SessionFilters, AreAskedInTheOrderOfTheCommands) {
  auto owner = run(hello + message + "text\r\n.\r\nQUIT\r\n");
  EXPECT_EQ(names(*owner), (std::vector<std::string>{"MAIL a@d", "RCPT u@d", "RCPT v@d", "DATA"}));
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "354", "250 2.0.0",
                                   "250 2.0.0", "221 2.0.0"}));
  EXPECT_EQ(owner->forgotten, 1);
}

TEST_F(SessionFilters, ASenderMayBeRefused) {
  verdicts["MAIL a@d"] = {Reply{550, "5.7.1", "Not you"}};
  auto owner = run(hello + message + "RSET\r\n" + "MAIL FROM:<b@d>\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "550 5.7.1", "503 5.5.1", "503 5.5.1", "503 5.5.1",
                                   "250 2.0.0", "250 2.1.0"}));
  ASSERT_EQ(owner->refused.size(), 3u);  // the sender, and recipients without a sender
  EXPECT_EQ(owner->refused.front().from, "a@d");
  EXPECT_EQ(owner->forgotten, 1);
}

TEST_F(SessionFilters, OneRecipientMayBeRefused) {
  verdicts["RCPT u@d"] = {Reply{451, "4.7.1", "Later"}};
  auto owner = run(hello + message + "text\r\n.\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "451 4.7.1", "250 2.1.5", "354", "250 2.0.0"}));
  ASSERT_EQ(owner->messages.size(), 1u);
  EXPECT_EQ(owner->messages[0].envelope->recipients.size(), 1u);
}

TEST_F(SessionFilters, HearOfRefusedRecipientsAndCannotAcceptThem) {
  auto owner = run(hello + "MAIL FROM:<a@d>\r\nRCPT TO:<nobody@d>\r\n");
  EXPECT_EQ(names(*owner), (std::vector<std::string>{"MAIL a@d", "refused nobody@d"}));
  EXPECT_EQ(owner->codes().back(), "550 5.1.1");
}

TEST_F(SessionFilters, DataMayBeRefused) {
  verdicts["DATA"] = {make_reply_of_lines(554, "5.7.1", {"No data", "from you"})};
  auto owner = run(hello + message + "RSET\r\n" + message.substr(0, 17) + "QUIT\r\n");
  EXPECT_EQ(owner->codes(), (Codes{"220", "250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "554 5.7.1",
                                   "250 2.0.0", "250 2.1.0", "221 2.0.0"}));
  EXPECT_NE(owner->sent.find("554-5.7.1 No data\r\n554 5.7.1 from you\r\n"), std::string::npos);
  EXPECT_TRUE(owner->messages.empty());
}

TEST_F(SessionFilters, TheFirstChunkAsksAsDataDoes) {
  std::string chunks = "MAIL FROM:<a@d>\r\nRCPT TO:<u@d>\r\nBDAT 3\r\nab\nBDAT 4 LAST\r\ncde\n";
  auto owner = run(hello + chunks);
  EXPECT_EQ(names(*owner), (std::vector<std::string>{"MAIL a@d", "RCPT u@d", "DATA"}));
  ASSERT_EQ(owner->messages.size(), 1u);
  EXPECT_EQ(owner->messages[0].text, "ab\ncde\n");
}

TEST_F(SessionFilters, ARefusedFirstChunkIsSkipped) {
  verdicts["DATA"] = {Reply{554, "5.7.1", "No data"}};
  EXPECT_EQ(replies(hello +
                    "MAIL FROM:<a@d>\r\nRCPT TO:<u@d>\r\nRCPT TO:<v@d>\r\nBDAT 6\r\nQUIT\r\nBDAT 0 LAST\r\n"),
            (Codes{"250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "554 5.7.1", "554 5.7.1", "554 5.7.1"}));
  EXPECT_EQ(replies(hello + "MAIL FROM:<a@d>\r\nRCPT TO:<u@d>\r\nRCPT TO:<v@d>\r\nBDAT 6 LAST\r\nQUIT\r\n"),
            (Codes{"250", "250 2.1.0", "250 2.1.5", "250 2.1.5", "554 5.7.1", "554 5.7.1"}));
}

TEST_F(SessionFilters, AConnectionMayBeEnded) {
  for (const char* at : {"MAIL a@d", "RCPT u@d", "DATA"}) {
    verdicts = {{at, {Reply{421, "4.7.0", "Go away"}, true}}};
    auto owner = run(hello + message);
    EXPECT_TRUE(owner->session().closed()) << at;
    EXPECT_EQ(owner->codes().back(), "421 4.7.0") << at;
  }
}

TEST_F(SessionFilters, TheConnectionMayEndBehindTheRepliesOfAMessage) {
  Owner owner(config);
  owner.answering = false;
  owner.receive(hello + "MAIL FROM:<a@d>\r\n");
  owner.answer_filter();
  owner.receive("RCPT TO:<u@d>\r\n");
  owner.answer_lookup();
  owner.answer_filter();
  owner.receive("DATA\r\n");
  owner.answer_filter();
  owner.receive("text\r\n.\r\nMAIL FROM:<b@d>\r\n");
  owner.session().close_after_replies();
  owner.finish(0, {421, "4.7.0", "Go away"});
  EXPECT_TRUE(owner.session().closed());
  EXPECT_EQ(owner.codes().back(), "421 4.7.0");
}

TEST_F(SessionFilters, ForgetWhatIsGivenUp) {
  EXPECT_EQ(run(hello + message.substr(0, 32) + "RSET\r\nRSET\r\n")->forgotten, 1);
  EXPECT_EQ(run(hello + message.substr(0, 32) + hello)->forgotten, 1);
}

FilterClient client_of(Owner& owner) {
  return std::get<FilterMail>(owner.all_filter_asks.back()).client;
}

TEST_F(SessionFilters, HearOfTheClientOfATrustedMta) {
  client.may_speak_for = true;
  const std::string
      forward = "XFORWARD NAME=mail.sender.example ADDR=192.0.2.9 PORT=40000 HELO=sender.example\r\n";
  auto forwarded = run(hello + forward + "MAIL FROM:<a@d>\r\n");
  EXPECT_EQ(client_of(*forwarded),
            (FilterClient{"mail.sender.example", "192.0.2.9", "sender.example", 40000, {}}));
  auto proxied = run(hello + "XCLIENT NAME=proxied.example ADDR=IPV6:2001:db8::1 PORT=7\r\n" + hello +
                     "MAIL FROM:<a@d>\r\n");
  EXPECT_EQ(client_of(*proxied), (FilterClient{"proxied.example", "2001:db8::1", "c.example.org", 7, {}}));
  auto unknown = run(hello + "MAIL FROM:<a@d>\r\n");
  EXPECT_EQ(client_of(*unknown), (FilterClient{{}, {}, "c.example.org", 0, {}}));
  auto next = run(hello + forward + message + ".\r\nMAIL FROM:<a@d>\r\n");
  EXPECT_EQ(client_of(*next).address, "") << "XFORWARD is about one message";
}

TEST_F(SessionFilters, HearTheParameters) {
  auto owner = run(hello +
                   "MAIL FROM:<a@d> SIZE=77 BODY=8BITMIME\r\n"
                   "RCPT TO:<u@d> NOTIFY=NEVER ORCPT=rfc822;x+2By@d\r\n");
  EXPECT_EQ(std::get<FilterMail>(owner->all_filter_asks[0]).size, 77u);
  EXPECT_EQ(std::get<FilterRcpt>(owner->all_filter_asks[1]).parameters,
            (std::vector<std::string>{"NOTIFY=NEVER", "ORCPT=rfc822;x+2By@d"}));
}

// No event of the client or the server is lost while an answer is awaited.
TEST_F(SessionFilters, AnEndWhileAnAnswerIsAwaited) {
  Owner owner(config);
  owner.answering = false;
  owner.receive(hello + "MAIL FROM:<a@d>\r\n");
  owner.shutdown();
  EXPECT_FALSE(owner.session().closed()) << "the client waits for its reply";
  owner.answer_filter();
  EXPECT_TRUE(owner.session().closed());
  EXPECT_EQ(owner.codes().back(), "421 4.3.2");
}

}  // namespace
}  // namespace twinloft::lmtpd::test
