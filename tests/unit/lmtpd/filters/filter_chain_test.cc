// The filters of a connection, against filters that accept, refuse, change, hang, die and lie.
#include "twinloft/lmtpd/filters/filters.h"

#include <gtest/gtest.h>

#include <atomic>

#include "scripted_filters.h"

namespace twinloft::lmtpd::test {
namespace {

using namespace std::string_view_literals;
namespace command = milter::command;
namespace answer = milter::answer;
namespace wish = milter::wish;

constexpr std::string_view message = "Subject: one\r\nX-Old: old\r\n\r\nbody\r\n";
constexpr std::uint32_t all_silent = wish::silent_connect | wish::silent_helo | wish::silent_mail |
                                     wish::silent_rcpt | wish::silent_data | wish::silent_header |
                                     wish::silent_end_of_headers | wish::silent_body;

// Continue, and at the end of the message these packets first.
auto changing(std::string changes, std::string verdict = packet(answer::continue_)) {
  return [=](const milter::Packet& p) {
    if (ScriptedFilter::is_silent(p.kind)) return std::string();
    return p.kind == command::end_of_body ? changes + verdict : packet(answer::continue_);
  };
}
// This answer to packets of this kind.
auto answering(char kind, std::string what) {
  return [=](const milter::Packet& p) {
    if (ScriptedFilter::is_silent(p.kind)) return std::string();
    return p.kind == kind ? what : packet(answer::continue_);
  };
}

class FilterChainTest : public testing::Test {
 protected:
  FilterChainTest() {
    for (std::size_t i = 0; i < 2; ++i) config.order.push_back({.name = i == 0 ? "one" : "two", .target = i});
    config.hostname = "mx.example.org";
    config.message_bytes_max = 1000;
    config.header_bytes_max = 500;
    config.recipients_max = 10;
  }
  FilterSession& chain() {
    if (!filters) filters = make_filters(config, connector, clock);
    if (!session)
      session = filters->open([this] { return std::make_shared<FakeBody>(false, body_bytes_max); });
    return *session;
  }
  FilterVerdict mail() { return chain().answer(FilterMail{envelope, client, 0}); }
  FilterVerdict rcpt(const char* to = "u@here.example") { return chain().answer(FilterRcpt{to, {}, false}); }
  FilterVerdict data() { return chain().answer(FilterData{}); }
  // From MAIL to the end. The first refusal of a command counts as that of the message.
  FilteredMessage run(std::string_view text = message) {
    for (FilterVerdict v : {mail(), rcpt(), data()})
      if (v.refusal) return {FilteredMessage::Refused{*v.refusal, v.ends_connection}};
    return chain().finish(envelope, body_of(text, in_file));
  }
  Reply refused(std::string_view text = message) {
    FilteredMessage out = run(text);
    auto* no = std::get_if<FilteredMessage::Refused>(&out.what);
    if (no) return no->reply;
    ADD_FAILURE() << "not refused";
    return {};
  }
  FilteredMessage::Passed passed(std::string_view text = message) {
    FilteredMessage out = run(text);
    auto* yes = std::get_if<FilteredMessage::Passed>(&out.what);
    if (yes) return std::move(*yes);
    auto* no = std::get_if<FilteredMessage::Refused>(&out.what);
    ADD_FAILURE() << "not passed: " << (no ? no->reply.text : "discarded");
    return {envelope, {}, {}, body_of("")};
  }

  OsClock clock;
  FiltersConfig config;
  ScriptedConnector connector{2};
  std::shared_ptr<Envelope> envelope = envelope_to({"u@here.example", "v@here.example"});
  FilterClient client{{}, {}, "mta.example", 0, {}};
  std::uint64_t body_bytes_max = UINT64_MAX;
  bool in_file = false;
  std::unique_ptr<Filters> filters;
  std::shared_ptr<FilterSession> session;
};

TEST_F(FilterChainTest, EachFilterHearsEverything) {
  EXPECT_EQ(text_of(passed().body), message);
  const std::vector<std::string> expected = {"Cunknown|U",
                                             "Hmta.example|",
                                             "M<a@sender.example>|",
                                             "R<u@here.example>|",
                                             "T",
                                             "LSubject|one|",
                                             "LX-Old|old|",
                                             "N",
                                             "Bbody\r\n",
                                             "E"};
  EXPECT_EQ(connector[0].heard(), expected);
  EXPECT_EQ(connector[1].heard(), expected);
}

TEST_F(FilterChainTest, ARefusalEndsTheCommand) {
  connector[0].answer = answering(command::mail, packet(answer::reject));
  FilterVerdict verdict = mail();
  ASSERT_TRUE(verdict.refusal);
  EXPECT_EQ(verdict.refusal->code, 550);
  EXPECT_EQ(verdict.refusal->enhanced, "5.7.1");
  EXPECT_EQ(connector[1].kinds(), "");
}

TEST_F(FilterChainTest, ARefusedRecipientIsAboutOneRecipient) {
  connector[1].answer = [](const milter::Packet& p) {
    bool no = p.kind == command::rcpt && p.data.starts_with("<no");
    return ScriptedFilter::is_silent(p.kind) ? "" : packet(no ? answer::tempfail : answer::continue_);
  };
  ASSERT_FALSE(mail().refusal);
  EXPECT_EQ(rcpt("no@here.example").refusal->code, 451);
  EXPECT_FALSE(rcpt().refusal);
  EXPECT_FALSE(data().refusal);
}

TEST_F(FilterChainTest, RefusedRecipientsAreHeardByFiltersThatAskForThem) {
  connector[1].wishes = wish::refused_recipients;
  ASSERT_FALSE(mail().refusal);
  ASSERT_FALSE(chain().answer(FilterRcpt{"nobody@here.example", {}, true}).refusal);
  EXPECT_EQ(connector[0].kinds(), "CHM");
  EXPECT_EQ(connector[1].kinds(), "CHMR");
}

TEST_F(FilterChainTest, AReplyOfTheFilter) {
  connector[0].answer = answering(command::end_of_body,
                                  packet(answer::reply_code, "554-5.7.9 100%% sure\r\n554 5.7.9 spam\0"sv));
  Reply reply = refused();
  EXPECT_EQ(reply, (Reply{554, "5.7.9", "100% sure", {"spam"}}));
  session.reset();
  connector.settle();
  EXPECT_EQ(connector[1].kinds(), "CHMRTAQ") << "the others forget the message";
}

TEST_F(FilterChainTest, A421EndsTheConnection) {
  connector[0].answer = answering(command::data, packet(answer::reply_code, "421 4.7.0 leave\0"sv));
  ASSERT_FALSE(mail().refusal || rcpt().refusal);
  EXPECT_TRUE(data().ends_connection);
  connector[0].answer = answering(command::mail, packet(answer::shut_down));
  FilterVerdict verdict = mail();
  ASSERT_TRUE(verdict.refusal);
  EXPECT_TRUE(verdict.ends_connection);
  EXPECT_EQ(verdict.refusal->code, 421);
}

TEST_F(FilterChainTest, AcceptEndsOneFilterOnly) {
  connector[0].answer = answering(command::rcpt, packet(answer::accept));
  connector[1].answer = changing(packet(answer::add_header, "X-Two\0yes\0"sv));
  EXPECT_EQ(text_of(passed().body), "Subject: one\r\nX-Old: old\r\nX-Two: yes\r\n\r\nbody\r\n");
  EXPECT_EQ(connector[0].kinds(), "CHMR");
}

TEST_F(FilterChainTest, DiscardAnywhereIsForTheWholeMessage) {
  for (char at : {command::mail, command::rcpt, command::data, command::header, command::end_of_body}) {
    connector[0].answer = answering(at, packet(answer::discard));
    EXPECT_TRUE(std::holds_alternative<FilteredMessage::Discarded>(run().what)) << at;
  }
  connector[0].answer = answering('?', "");
  EXPECT_EQ(text_of(passed().body), message) << "the next message is another";
}

TEST_F(FilterChainTest, ALaterFilterSeesTheChangesOfAnEarlierOne) {
  connector[0].answer = changing(
      packet(answer::add_header, "X-New\0yes\0"sv) + packet(answer::change_header, "\0\0\0\1X-Old\0\0"sv) +
      packet(answer::replace_body, "new ") + packet(answer::replace_body, "body\r\n"));
  connector[1].answer = changing(packet(answer::insert_header, "\0\0\0\0X-First\0top\0"sv));
  EXPECT_EQ(text_of(passed().body), "X-First: top\r\nSubject: one\r\nX-New: yes\r\n\r\nnew body\r\n");
  const auto heard = connector[1].heard();
  EXPECT_EQ(std::vector(heard.begin() + 5, heard.end()),
            (std::vector<std::string>{"LSubject|one|", "LX-New|yes|", "N", "Bnew body\r\n", "E"}));
}

TEST_F(FilterChainTest, AMessageInAFileIsChangedToo) {
  in_file = true;
  config.message_bytes_max = 1 << 20;
  std::string large = "Subject: one\r\n\r\n" + std::string(200'000, 'x') + "\r\n";
  connector[0].answer = changing(packet(answer::add_header, "X-New\0yes\0"sv));
  EXPECT_EQ(text_of(passed(large).body), "Subject: one\r\nX-New: yes\r\n" + large.substr(14));
  std::size_t chunks = 0, bytes = 0;
  for (const std::string& event : connector[1].heard())
    if (event[0] == 'B') ++chunks, bytes += event.size() - 1;
  EXPECT_EQ(bytes, 200'002u);
  EXPECT_EQ(chunks, 4u) << "of at most 65,535 bytes";
}

TEST_F(FilterChainTest, TheEnvelopeChanges) {
  connector[0].answer = changing(
      packet(answer::change_sender, "<b@new.example>\0RET=HDRS\0"sv) +
      packet(answer::remove_recipient, "<V@HERE.example>\0"sv) +
      packet(answer::add_recipient_with_parameters, "<w@here.example>\0NOTIFY=NEVER\0"sv));
  connector[1].answer = changing(packet(answer::add_recipient, "u@here.example\0"sv) +
                                 packet(answer::remove_recipient, "<v@here.example>\0"sv));
  FilteredMessage::Passed out = passed();
  EXPECT_EQ(out.envelope->from, "b@new.example");
  EXPECT_EQ(out.envelope->ret, "HDRS");
  EXPECT_EQ(out.envelope->recipients.size(), 2u);
  EXPECT_EQ(out.removed, (std::vector<bool>{false, true}));
  ASSERT_EQ(out.added.size(), 1u) << "u has the message already";
  EXPECT_EQ(out.added[0].command.to.text, "w@here.example");
  EXPECT_EQ(out.added[0].command.notify, "NEVER");
  EXPECT_EQ(out.added[0].filter, "one");
  EXPECT_EQ(text_of(out.body), message);
}

// An address that no command of a client could have.
TEST_F(FilterChainTest, AMalformedAddressIsAFailureOfTheFilter) {
  for (std::string_view wrong : {"<a\r\nb@x>\0"sv, "<>\0"sv, "<a@b\0"sv, "a> <b\0"sv})
    for (char kind : {answer::add_recipient, answer::change_sender}) {
      if (kind == answer::change_sender && wrong == "<>\0"sv) continue;  // the null sender
      connector[0].answer = changing(packet(kind, wrong));
      EXPECT_EQ(refused().enhanced, "4.7.1") << wrong;
    }
  connector[0].answer = changing(packet(answer::add_recipient_with_parameters, "<a@b>\0NOTIFY=?\0"sv));
  EXPECT_EQ(refused().enhanced, "4.7.1");
}

TEST_F(FilterChainTest, ChangesOfAFilterThatRefusesDoNotCount) {
  connector[0].answer = changing(packet(answer::add_header, "X\0y\0"sv), packet(answer::tempfail));
  EXPECT_EQ(refused().code, 451);
}

TEST_F(FilterChainTest, AChangedMessageMayBeTooLarge) {
  connector[0].answer = changing(packet(answer::replace_body, std::string(1000, 'x')));
  EXPECT_EQ(refused().enhanced, "5.3.4");
  connector[0].answer = changing(
      packet(answer::add_header, std::string("X\0", 2) + std::string(500, 'x') + '\0'));
  EXPECT_EQ(refused().enhanced, "5.3.4");
  // A body that stays counts too.
  const std::string large = "Subject: one\r\n\r\n" + std::string(config.message_bytes_max - 30, 'x') + "\r\n";
  connector[0].answer = changing(packet(answer::add_header, "X\0y\0"sv));
  EXPECT_EQ(passed(large).body->body().size, large.size() + 6);
  connector[0].answer = changing(packet(answer::add_header, "X\0yyyyyyyyyyyyy\0"sv));
  EXPECT_EQ(refused(large).enhanced, "5.3.4");
  connector[0].answer = changing(packet(answer::replace_body, "short\r\n") +
                                 packet(answer::add_header, "X\0yyyyyyyyyyyyy\0"sv));
  EXPECT_EQ(text_of(passed(large).body), "Subject: one\r\nX: yyyyyyyyyyyyy\r\n\r\nshort\r\n");
}

TEST_F(FilterChainTest, NoRoomForAChangedMessageIsNotTheFiltersFault) {
  config.order[0].on_failure = milter::DefaultAction::reject;
  body_bytes_max = 10;
  connector[0].answer = changing(packet(answer::replace_body, std::string(100, 'x')));
  EXPECT_EQ(refused().code, 452);
  connector[0].answer = changing(packet(answer::add_header, "X\0y\0"sv));
  EXPECT_EQ(refused().code, 452);
}

TEST_F(FilterChainTest, DefaultActionsOfAFilterThatCannotBeReached) {
  connector[0].reachable = false;
  for (auto [action, code] :
       {std::pair(milter::DefaultAction::tempfail, 451), {milter::DefaultAction::reject, 550}}) {
    config.order[0].on_failure = action;
    session.reset(), filters.reset();
    EXPECT_EQ(mail().refusal->code, code);
    EXPECT_EQ(mail().refusal->code, code) << "also while it is not tried again";
  }
  config.order[0].on_failure = milter::DefaultAction::accept;
  session.reset(), filters.reset();
  EXPECT_EQ(text_of(passed().body), message);
  EXPECT_EQ(connector[1].kinds(), "CHMRTLLNBE");
}

// A filter that dies at any byte of its output has changed nothing, or everything.
TEST_F(FilterChainTest, AFilterThatDiesAtAnyByteChangesNothing) {
  config.order[0].on_failure = milter::DefaultAction::accept;
  const std::string changes = packet(answer::add_header, "X\0y\0"sv) + packet(answer::replace_body, "new") +
                              packet(answer::add_recipient, "<w@here.example>\0"sv);
  connector[0].answer = changing(changes);
  const std::string changed = "Subject: one\r\nX-Old: old\r\nX: y\r\n\r\nnew";
  const std::size_t whole = agreement(0).size() + 10 * packet(answer::continue_).size() + changes.size();
  for (std::size_t bytes = 1; bytes <= whole; ++bytes) {
    connector[0].bytes_max = bytes;
    session.reset();  // a new connection
    FilteredMessage::Passed out = passed();
    EXPECT_EQ(text_of(out.body), bytes < whole ? message : changed) << bytes;
    EXPECT_EQ(out.added.size(), bytes < whole ? 0u : 1u) << bytes;
  }
}

TEST_F(FilterChainTest, AFilterThatLiesIsLeft) {
  for (const std::string& lie :
       {packet('?'), packet(answer::add_header, "X\0y\0"sv), packet(answer::reply_code, "250 2.0.0 fine\0"sv),
        std::string(4, '\xff') + "x", std::string(5, '\0'),
        packet(answer::continue_) + packet(answer::reject)}) {
    connector[0].answer = answering(command::rcpt, lie);
    ASSERT_FALSE(mail().refusal);
    const bool late = lie.size() > 8 && lie[4] == answer::continue_;  // noticed at the next command
    FilterVerdict verdict = late ? (rcpt(), data()) : rcpt();
    ASSERT_TRUE(verdict.refusal);
    EXPECT_EQ(verdict.refusal->code, 451);
    EXPECT_TRUE(data().refusal) << "the message has met a filter that failed";
  }
}

TEST_F(FilterChainTest, AFilterThatHangsCostsItsTimeLimit) {
  config.order[0].command_timeout = std::chrono::milliseconds(50);
  connector[0].answer = [](const milter::Packet&) { return std::string(); };
  EXPECT_EQ(mail().refusal->code, 451);
}

TEST_F(FilterChainTest, ProgressDoesNotRenewTheWaitForEver) {
  config.order[0].message_timeout = std::chrono::seconds(60);
  config.order[0].message_most = std::chrono::milliseconds(300);
  std::atomic<bool> stop{false};
  connector[0].answer = [&](const milter::Packet& p) {
    if (ScriptedFilter::is_silent(p.kind)) return std::string();
    return packet(p.kind == command::end_of_body ? answer::progress : answer::continue_);
  };
  EXPECT_EQ(refused().code, 451);
}

TEST_F(FilterChainTest, GivingUpEndsEachWait) {
  connector[0].answer = [&](const milter::Packet& p) {
    if (p.kind == command::mail) filters->give_up();
    return p.kind == command::mail || ScriptedFilter::is_silent(p.kind) ? "" : packet(answer::continue_);
  };
  chain();
  EXPECT_EQ(mail().refusal->code, 451);
}

TEST_F(FilterChainTest, QuarantineIsForOneMailbox) {
  config.quarantine = "bad@here.example";
  connector[0].answer = changing(packet(answer::quarantine, "looks\nwrong\0"sv) +
                                 packet(answer::remove_recipient, "<u@here.example>\0"sv));
  connector[1].answer = changing(packet(answer::add_recipient, "<w@here.example>\0"sv));
  FilteredMessage::Passed out = passed();
  EXPECT_EQ(out.removed, (std::vector<bool>{true, true}));
  ASSERT_EQ(out.added.size(), 1u);
  EXPECT_EQ(out.added[0].command.to.text, "bad@here.example");
  EXPECT_EQ(text_of(out.body),
            "X-Quarantine-Reason: one: looks?wrong\r\nX-Quarantine-Recipients: <v@here.example>\r\n" +
                std::string(message));
}

TEST_F(FilterChainTest, QuarantineAsADefaultAction) {
  config.quarantine = "bad@here.example";
  config.order[0].on_failure = milter::DefaultAction::quarantine;
  connector[0].answer = answering(command::rcpt, packet('?'));
  FilteredMessage::Passed out = passed();
  EXPECT_EQ(out.removed, (std::vector<bool>{true, true}));
  EXPECT_EQ(out.added.size(), 1u);
}

TEST_F(FilterChainTest, QuarantineWithoutAMailboxDefersTheMessage) {
  connector[0].answer = changing(packet(answer::quarantine, "wrong\0"sv));
  EXPECT_EQ(refused().enhanced, "4.7.1");
}

TEST_F(FilterChainTest, OneConnectionForManyMessages) {
  passed(), passed();
  EXPECT_EQ(connector.connections(), 2u);
  EXPECT_EQ(connector[0].kinds(), "CHMRTLLNBEMRTLLNBE");
}

TEST_F(FilterChainTest, AnotherClientIsIntroduced) {
  passed();
  client = {"mail.sender.example", "2001:db8::1", "sender.example", 4711, {}};
  passed();
  EXPECT_EQ(connector.connections(), 2u);
  EXPECT_EQ(connector[0].kinds(), "CHMRTLLNBEKCHMRTLLNBE");
  EXPECT_EQ(connector[0].heard()[11],
            "Cmail.sender.example|6\x12\x67"
            "2001:db8::1|");
}

TEST_F(FilterChainTest, ARefusedClientStaysRefused) {
  connector[0].answer = answering(command::connect, packet(answer::reject));
  EXPECT_EQ(mail().refusal->code, 550);
  EXPECT_EQ(mail().refusal->code, 550);
  EXPECT_EQ(connector[0].kinds(), "C");
}

TEST_F(FilterChainTest, AFilterThatHasEndedMeanwhileIsReachedAnew) {
  connector[0].bytes_max = agreement(0).size() + 10 * packet(answer::continue_).size();  // one message
  EXPECT_EQ(text_of(passed().body), message);
  connector.wait_for_end(0);
  EXPECT_EQ(text_of(passed().body), message);
  EXPECT_EQ(connector.connections(), 3u);
}

TEST_F(FilterChainTest, AForgottenMessageIsAborted) {
  ASSERT_FALSE(mail().refusal || rcpt().refusal);
  chain().forget();
  EXPECT_EQ(text_of(passed().body), message);
  EXPECT_EQ(connector[0].kinds(), "CHMRAMRTLLNBE");
}

TEST_F(FilterChainTest, SilentFiltersAreNotWaitedFor) {
  connector[0].wishes = connector[1].wishes = all_silent;
  connector[0].answer = connector[1].answer = [](const milter::Packet& p) {
    return p.kind == command::end_of_body ? packet(answer::continue_) : std::string();
  };
  EXPECT_FALSE(chain().answer_now(FilterMail{envelope, client, 0})) << "it has to connect";
  passed();
  EXPECT_TRUE(chain().answer_now(FilterMail{envelope, client, 0}));
  EXPECT_TRUE(chain().answer_now(FilterRcpt{"u@here.example", {}, false}));
  EXPECT_TRUE(chain().answer_now(FilterData{}));
  FilteredMessage out = chain().finish(envelope, body_of(message));
  EXPECT_TRUE(std::holds_alternative<FilteredMessage::Passed>(out.what));
}

// Each answer comes within its own limit, and all together would not.
TEST_F(FilterChainTest, AllAnswersToAMessageHaveOneLimit) {
  config.order[0].message_most = std::chrono::milliseconds(200);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "X: y\r\n";
  connector[0].answer = [&](const milter::Packet& p) {
    if (ScriptedFilter::is_silent(p.kind)) return std::string();
    if (p.kind == command::header) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return packet(answer::continue_);
  };
  config.header_bytes_max = config.message_bytes_max = 10'000;
  EXPECT_EQ(refused(many + "\r\n").code, 451);
}

TEST_F(FilterChainTest, AFilterThatDeferredTheClientIsAskedAgain) {
  for (const std::string& later :
       {packet(answer::tempfail), packet(answer::reply_code, "451 4.7.1 later\0"sv)}) {
    connector[0].answer = answering(command::connect, later);
    EXPECT_EQ(mail().refusal->code, 451);
    connector[0].answer = answering('?', "");
    EXPECT_EQ(text_of(passed().body), message);
    session.reset();
  }
}

TEST_F(FilterChainTest, AShortageHereIsNotTheFiltersFault) {
  config.order[0].on_failure = milter::DefaultAction::accept;
  connector[0].shortage = true;
  EXPECT_EQ(mail().refusal->enhanced, "4.3.2");
}

TEST_F(FilterChainTest, AStoredMessageThatCannotBeReadIsNotTheFiltersFault) {
  config.order[0].on_failure = milter::DefaultAction::reject;
  ASSERT_FALSE(mail().refusal || rcpt().refusal || data().refusal);
  auto body = body_of(std::string(message) + std::string(100, 'x'), true);
  ASSERT_EQ(::ftruncate(body->body().file.get(), 60), 0);
  FilteredMessage out = chain().finish(envelope, body);
  auto* no = std::get_if<FilteredMessage::Refused>(&out.what);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->reply.code, 451);
}

TEST_F(FilterChainTest, AHeaderOfVeryManyLinesIsRefused) {
  config.header_bytes_max = config.message_bytes_max = 1 << 20;
  std::string many;
  for (int i = 0; i < 20'001; ++i) many += "a:\r\n";
  EXPECT_EQ(refused(many + "\r\n").code, 552);
}

TEST_F(FilterChainTest, ANewBodyIsNoPartOfTheHeader) {
  connector[0].answer = changing(packet(answer::replace_body, "From: forged\r\n"));
  EXPECT_EQ(text_of(passed("Subject: one\r\n").body), "Subject: one\r\n\r\nFrom: forged\r\n");
}

}  // namespace
}  // namespace twinloft::lmtpd::test
