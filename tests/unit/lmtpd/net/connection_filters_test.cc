// A server whose filters hear each message before its delivery: verdicts, changes of the envelope, and what
// ends while the filters are at work.
#include "fake_filters.h"
#include "server_fixture.h"

namespace twinloft::lmtpd {
namespace {

using Log = std::vector<std::string>;

class ServerFilters : public ServerTest {
 protected:
  ServerFilters() { config_.filters = &filters_; }
  ~ServerFilters() override {
    filters_.release();
    stop();
    server_.reset();  // its threads use the filters
  }
  // A client that has sent a complete message.
  std::unique_ptr<LmtpClient> sent(std::initializer_list<std::string_view> recipients) {
    auto client = std::make_unique<LmtpClient>(port_);
    client->begin();
    client->envelope(recipients);
    client->send(message);
    return client;
  }
  // Its filters hold the message.
  std::unique_ptr<LmtpClient> held() {
    filters_.held = {"message"};
    start();
    auto client = sent({"ann@example.org", "bob@example.org"});
    filters_.wait_for("message");
    EXPECT_TRUE(deliverer_.delivered().empty()) << "before the filters' verdict";
    return client;
  }
  std::vector<std::string> delivered_to() {
    std::vector<std::string> out;
    for (const Delivered& one : deliverer_.delivered()) out.push_back(one.to);
    return out;
  }
  void expect_replies(LmtpClient& client, std::initializer_list<std::string_view> starts) {
    for (std::string_view start : starts) EXPECT_EQ(client.reply().substr(0, start.size()), start);
  }

  // One thread serves all clients, so an idle client shows what the others know.
  void stop_and_wait_until_known() {
    LmtpClient idle(port_);
    idle.begin();
    server_->stop();
    EXPECT_EQ(idle.reply().substr(0, 3), "421");
  }

  FakeFilters filters_;
};

TEST_F(ServerFilters, HearAMessageBeforeItsDelivery) {
  auto client = held();
  filters_.release();
  expect_replies(*client, {"250 2.0.0 ann@example.org", "250 2.0.0 bob@example.org"});
  EXPECT_EQ(filters_.log(), (Log{"open", "MAIL from@example.org", "RCPT ann@example.org",
                                 "RCPT bob@example.org", "DATA", "message", "forget"}));
  client->envelope({"carl@example.org"});
  client->send(message);
  expect_replies(*client, {"250"});
  EXPECT_EQ(deliverer_.delivered().back().text, message_stored);
  client->send("QUIT\r\n");
  client->hang_up();
  filters_.wait_for("close");
  EXPECT_FALSE(filters_.has_heard("give up")) << "filters that are not at work can still be told of the end";
}

TEST_F(ServerFilters, AnswerOnThreadsOfTheirOwn) {
  filters_.slow = {"MAIL from@example.org", "RCPT ann@example.org", "DATA"};
  filters_.verdicts["RCPT bob@example.org"] = {Reply{450, "4.7.1", "Not now"}};
  start();
  LmtpClient client(port_);
  client.begin();
  client.send("MAIL FROM:<from@example.org>\r\nRCPT TO:<ann@example.org>\r\nRCPT TO:<bob@example.org>\r\n" +
              ("DATA\r\n" + std::string(message)));
  expect_replies(client, {"250 2.1.0", "250 2.1.5", "450 4.7.1", "354", "250"});
}

TEST_F(ServerFilters, AVerdictIsForEachRecipientInOrder) {
  filters_.result = [](auto, auto) {
    return FilteredMessage{FilteredMessage::Refused{{550, "5.7.1", "Spam"}, false}};
  };
  start();
  auto client = sent({"ann@example.org", "bob@example.org"});
  expect_replies(*client, {"550 5.7.1 Spam", "550 5.7.1 Spam"});
  EXPECT_EQ(client->ask("NOOP\r\n").substr(0, 3), "250");
  filters_.result = [](auto, auto) { return FilteredMessage{FilteredMessage::Discarded{}}; };
  client->envelope({"ann@example.org", "bob@example.org"});
  client->send(message);
  expect_replies(*client, {"250 2.0.0", "250 2.0.0"});
  filters_.result = [](auto, auto) {
    return FilteredMessage{FilteredMessage::Refused{{421, "4.7.0", "Go away"}, true}};
  };
  client->envelope({"ann@example.org", "bob@example.org"});
  client->send(message);
  expect_replies(*client, {"421 4.7.0", "421 4.7.0"});
  EXPECT_TRUE(client->at_end());
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(ServerFilters, AddedRecipientsComeFirst) {
  filters_.change({"copy@example.org", "audit@example.org"}, {false, true, false});
  deliverer_.hold();
  start();
  auto client = sent({"ann@example.org", "bob@example.org", "carl@example.org"});
  deliverer_.wait_for_waiting(2);
  deliverer_.release();
  expect_replies(*client, {"250 2.0.0 ann@example.org delivered", "250 2.0.0 Not delivered: a filter",
                           "250 2.0.0 carl@example.org delivered"});
  std::vector<std::string> to = delivered_to();
  std::sort(to.begin(), to.begin() + 2);
  std::sort(to.begin() + 2, to.end());
  EXPECT_EQ(to, (Log{"audit@example.org", "copy@example.org", "ann@example.org", "carl@example.org"}));
}

TEST_F(ServerFilters, WithoutAnAddedRecipientNobodyGetsIt) {
  start();
  for (auto [added, code] : {std::pair("full@example.org", "451 4.3.0"),
                             {"refused@example.org", "451 4.3.0"},
                             {"throws@example.org", "451 4.3.0"},
                             {"nobody@example.org", "451 4.3.5"},
                             {"broken@example.org", "451 4.3.0"},
                             {"throw@example.org", "451 4.3.0"}}) {
    filters_.change({added});
    auto client = sent({"ann@example.org", "bob@example.org"});
    expect_replies(*client, {code, code});
    EXPECT_EQ(std::ranges::count(delivered_to(), "ann@example.org"), 0) << added;
    EXPECT_EQ(std::ranges::count(delivered_to(), "bob@example.org"), 0) << added;
  }
}

TEST_F(ServerFilters, AllRecipientsMayBeRemoved) {
  filters_.change({}, {true, true});
  start();
  auto client = sent({"ann@example.org", "bob@example.org"});
  expect_replies(*client, {"250 2.0.0 Not delivered", "250 2.0.0 Not delivered"});
  EXPECT_TRUE(deliverer_.delivered().empty());
  filters_.change({"quarantine@example.org"}, {true, true});
  auto other = sent({"ann@example.org", "bob@example.org"});
  expect_replies(*other, {"250 2.0.0 Not delivered", "250 2.0.0 Not delivered"});
  EXPECT_EQ(delivered_to(), Log{"quarantine@example.org"});
}

TEST_F(ServerFilters, NothingIsDeliveredForAClientThatHasLeft) {
  auto client = held();
  client->hang_up();
  filters_.wait_for("close");
  EXPECT_TRUE(filters_.has_heard("give up"));
  stop();
  EXPECT_TRUE(end_.in_order());
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(ServerFilters, AClientThatLeavesAmongTheStages) {
  filters_.change({"copy@example.org"});
  start();
  deliverer_.hold();
  auto client = sent({"ann@example.org"});
  deliverer_.wait_for_waiting(1);
  client->finish_sending();
  LmtpClient other(port_);  // one thread serves both, so an answer here means that it has seen the end
  other.begin();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(other.ask("NOOP\r\n").substr(0, 3), "250");
  deliverer_.release();
  expect_replies(*client, {"451 4.3.0"});
  EXPECT_EQ(delivered_to(), Log{"copy@example.org"});
}

TEST_F(ServerFilters, AStopDoesNotWaitForTheFiltersOfAMessage) {
  auto client = held();
  server_->stop();
  expect_replies(*client, {"451 4.3.2", "451 4.3.2", "421 4.3.2"});
  EXPECT_TRUE(client->at_end());
  expect_end({client.get()});
  EXPECT_TRUE(deliverer_.delivered().empty());
}

// Otherwise the process would stay for the time limits of a filter that hangs.
TEST_F(ServerFilters, AStopDoesNotWaitForTheFiltersOfACommand) {
  filters_.slow = filters_.held = {"MAIL from@example.org"};
  start();
  LmtpClient client(port_);
  client.begin();
  client.send("MAIL FROM:<from@example.org>\r\n");
  filters_.wait_for("MAIL from@example.org");
  server_->stop();
  expect_replies(client, {"250 2.1.0", "421 4.3.2"});
  EXPECT_TRUE(client.at_end());
  EXPECT_TRUE(filters_.has_heard("give up"));
  expect_end({&client});
}

TEST_F(ServerFilters, AStopBetweenTheStages) {
  filters_.change({"copy@example.org"});
  start();
  deliverer_.hold();
  auto client = sent({"ann@example.org"});
  deliverer_.wait_for_waiting(1);
  stop_and_wait_until_known();
  deliverer_.release();
  expect_replies(*client, {"451 4.3.2", "421 4.3.2"});
  expect_end({client.get()});
  EXPECT_EQ(delivered_to(), Log{"copy@example.org"});
}

// The message becomes complete after the stop.
TEST_F(ServerFilters, AMessageThatIsStoredDuringAStopIsNotHeard) {
  Gate storing;
  config_.body_memory = 10;
  config_.make_body_file = [&](const std::string& directory) {
    storing.pass();
    return make_unlinked_file(directory);
  };
  start();
  auto client = sent({"ann@example.org"});
  storing.wait_for_waiting(1);
  stop_and_wait_until_known();
  storing.release();
  expect_replies(*client, {"451 4.3.2", "421 4.3.2"});
  expect_end({client.get()});
  EXPECT_FALSE(filters_.has_heard("message"));
}

TEST_F(ServerFilters, AnExceptionIsTemporary) {
  filters_.slow = filters_.throwing = {"MAIL from@example.org"};
  start();
  LmtpClient first(port_);
  first.begin();
  EXPECT_EQ(first.ask("MAIL FROM:<from@example.org>\r\n").substr(0, 9), "451 4.3.0");
  EXPECT_EQ(first.ask("RSET\r\n").substr(0, 3), "250");
  filters_.throwing = {"message"};
  auto client = sent({"ann@example.org", "bob@example.org"});
  expect_replies(*client, {"451 4.3.0", "451 4.3.0"});
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(ServerFilters, ForgetATransactionThatEndsEarly) {
  start();
  LmtpClient client(port_);
  client.begin();
  for (const char* end : {"RSET\r\n", "LHLO again.example.org\r\n"}) {
    EXPECT_EQ(client.ask("MAIL FROM:<from@example.org>\r\n").substr(0, 3), "250");
    EXPECT_EQ(client.ask(end).substr(0, 3), "250");
    EXPECT_EQ(filters_.log().back(), "forget") << end;
  }
  EXPECT_EQ(client.ask("MAIL FROM:<from@example.org>\r\n").substr(0, 3), "250");
  client.hang_up();
  filters_.wait_for("close");
  Log log = filters_.log();
  EXPECT_EQ((Log{log.end() - 2, log.end()}), (Log{"forget", "close"}))
      << "not given up: the connection to the filter must carry the ABORT";
}

// One message is held until the end: the others get their reply after queue_time.
TEST_F(ServerFilters, ThatAreBusyDeferOtherMessages) {
  config_.filter_threads = 1;
  config_.queue_time = std::chrono::seconds(2);  // the first message must get its thread in this time
  filters_.slow = {"RCPT bob@example.org"};
  auto client = held();
  LmtpClient other(port_);
  other.begin();
  other.send("MAIL FROM:<from@example.org>\r\nRCPT TO:<bob@example.org>\r\n");
  expect_replies(other, {"250 2.1.0", "451 4.3.2"});
  other.send("RSET\r\n");
  expect_replies(other, {"250"});
  other.envelope({"carl@example.org"});
  other.send(message);
  expect_replies(other, {"451 4.3.2"});
  EXPECT_TRUE(deliverer_.delivered().empty());
  filters_.release();
  EXPECT_EQ(client->reply().substr(0, 3), "250");
}

TEST_F(ServerFilters, AQuarantinedMessageIsNotCalledRemoved) {
  filters_.result = [](auto envelope, auto body) {
    FilteredMessage::Passed passed{std::move(envelope),
                                   {true},
                                   {FakeFilters::added_recipient("bad@example.org")},
                                   std::move(body),
                                   true};
    return FilteredMessage{std::move(passed)};
  };
  start();
  auto client = sent({"ann@example.org"});
  expect_replies(*client, {"250 2.0.0 Accepted for review"});
  EXPECT_EQ(delivered_to(), (Log{"bad@example.org"}));
}

}  // namespace
}  // namespace twinloft::lmtpd
