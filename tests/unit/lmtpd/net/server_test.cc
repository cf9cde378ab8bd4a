#include <fcntl.h>
#include <signal.h>

#include "server_fixture.h"

namespace twinloft::lmtpd {
namespace {

using namespace std::chrono_literals;

TEST_F(ServerTest, DeliversOverTcpAndUnixSocket) {
  start();
  LmtpClient tcp(port_);
  LmtpClient local(path());
  for (LmtpClient* client : {&tcp, &local}) {
    client->begin();
    client->envelope({"ann@example.org"});
    EXPECT_EQ(client->ask(message).substr(0, 9), "250 2.0.0");
    EXPECT_EQ(client->ask("QUIT\r\n").substr(0, 3), "221");
    EXPECT_TRUE(client->at_end());
  }
  auto delivered = deliverer_.delivered();
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[0].text, message_stored);
  EXPECT_EQ(delivered[0].from, "from@example.org");
  EXPECT_EQ(delivered[0].to, "ann@example.org");
}

constexpr std::string_view two_transactions =
    "LHLO c.example.org\r\n"
    "MAIL FROM:<a@example.org>\r\nRCPT TO:<ann@example.org>\r\nRCPT TO:<nobody@example.org>\r\nDATA\r\n"
    "Subject: 1\r\n\r\none\r\n.\r\n"
    "MAIL FROM:<b@example.org>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\n"
    "Subject: 2\r\n\r\ntwo\r\n.\r\n"
    "QUIT\r\n";

void expect_two_transactions(LmtpClient& client, FakeDeliverer& deliverer) {
  const char* codes[] = {"220", "250", "250", "250", "550", "354", "250", "250", "250", "354", "250", "221"};
  for (const char* code : codes) EXPECT_EQ(client.reply().substr(0, 3), code);
  EXPECT_TRUE(client.at_end());
  auto delivered = deliverer.delivered();
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[0].text, "Subject: 1\r\n\r\none\r\n");
  EXPECT_EQ(delivered[1].text, "Subject: 2\r\n\r\ntwo\r\n");
}

TEST_F(ServerTest, EverythingInOneSegment) {
  start();
  LmtpClient client(port_);
  client.send(two_transactions);
  expect_two_transactions(client, deliverer_);
}

TEST_F(ServerTest, OneByteAtATime) {
  start();
  LmtpClient client(port_);
  client.trickle(two_transactions);
  expect_two_transactions(client, deliverer_);
}

TEST_F(ServerTest, LookUpsOnTheIoThreadAnswerTheSame) {
  users_.at_hand = true;
  start();
  LmtpClient client(port_);
  client.send(two_transactions);
  expect_two_transactions(client, deliverer_);
}

TEST_F(ServerTest, RepliesComeInTheOrderOfTheRecipients) {
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org", "full@example.org", "throws@example.org", "bob@example.org"});
  EXPECT_EQ(client.ask(message).substr(0, 9), "250 2.0.0");
  EXPECT_EQ(client.reply().substr(0, 9), "452 4.2.2");
  EXPECT_EQ(client.reply().substr(0, 9), "451 4.3.0")
      << "an exception is an internal error, so the reply is temporary";
  EXPECT_EQ(client.reply().substr(0, 9), "250 2.0.0");
  EXPECT_EQ(client.ask("NOOP\r\n").substr(0, 3), "250") << "command and reply match";
}

// Each delivery waits until three have begun, so they only end if they run in parallel.
TEST_F(ServerTest, DeliveriesOfATransactionRunInParallel) {
  config_.deliveries_per_transaction_max = 3;
  start();
  deliverer_.hold(3);
  LmtpClient client(port_);
  client.begin();
  client.envelope({"a@example.org", "b@example.org", "c@example.org", "d@example.org", "e@example.org"});
  EXPECT_EQ(client.ask(message).substr(0, 3), "250");
  for (int i = 1; i < 5; ++i) EXPECT_EQ(client.reply().substr(0, 3), "250");
  EXPECT_EQ(deliverer_.most_at_once(), 3);
}

// The first two deliveries wait for each other, so they run in parallel. They cannot be to one user.
TEST_F(ServerTest, DetailsOfOneUserComeOneAfterTheOther) {
  start();
  deliverer_.hold(2);
  LmtpClient client(port_);
  client.begin();
  std::string text = "MAIL FROM:<>\r\n";
  for (int i = 0; i < 20; ++i) text += "RCPT TO:<ann+" + std::to_string(i) + "@example.org>\r\n";
  client.send(text + "RCPT TO:<bob@example.org>\r\nDATA\r\n" + std::string(message));
  for (int i = 0; i < 22; ++i) EXPECT_EQ(client.reply().substr(0, 3), "250");
  EXPECT_EQ(client.reply().substr(0, 3), "354");
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(client.reply(), "250 2.0.0 ann+" + std::to_string(i) + "@example.org delivered");
  EXPECT_EQ(client.reply(), "250 2.0.0 bob@example.org delivered");
  EXPECT_EQ(deliverer_.most_at_once_to_one_user(), 1);
  EXPECT_EQ(deliverer_.most_at_once(), 2);
}

TEST_F(ServerTest, LookUpsThatFailAreTemporary) {
  start();
  LmtpClient client(port_);
  client.begin();
  client.ask("MAIL FROM:<>\r\n");
  EXPECT_EQ(client.ask("RCPT TO:<broken@example.org>\r\n").substr(0, 9), "451 4.3.0");
  EXPECT_EQ(client.ask("RCPT TO:<throw@example.org>\r\n").substr(0, 9), "451 4.3.0");
  EXPECT_EQ(client.ask("RCPT TO:<nobody@example.org>\r\n").substr(0, 9), "550 5.1.1");
  EXPECT_EQ(client.ask("RCPT TO:<ann@example.org>\r\n").substr(0, 3), "250");
}

void expect_refused_for_room(LmtpClient& client) {
  client.send(
      "LHLO c\r\nMAIL FROM:<> SIZE=101\r\nRCPT TO:<quota@d>\r\nRCPT TO:<quota+ignored@d>\r\nRCPT "
      "TO:<ann@d>\r\nRCPT TO:<quota-throws@d>\r\nRCPT TO:<nobody@d>\r\nRSET\r\n"
      "MAIL FROM:<> SIZE=100\r\nRCPT TO:<quota@d>\r\nQUIT\r\n");
  for (const char* reply : {"220", "250", "250 2.1.0", "552 5.2.2", "250 2.1.5", "250 2.1.5", "250 2.1.5",
                            "550 5.1.1", "250 2.0.0", "250 2.1.0", "250 2.1.5", "221"})
    EXPECT_EQ(client.reply().substr(0, std::string_view(reply).size()), reply);
}

TEST_F(ServerTest, RefusalsAreLogged) {
  start();
  testing::internal::CaptureStderr();
  LmtpClient client(port_);
  client.begin();
  EXPECT_EQ(client.ask("MAIL FROM:<from@example.org>\r\n").substr(0, 3), "250");
  EXPECT_EQ(client.ask("RCPT TO:<nobody@example.org>\r\n").substr(0, 9), "550 5.1.1");
  client.hang_up();
  stop();
  std::string log = testing::internal::GetCapturedStderr();
  for (std::string_view part : {"recipient refused",
                                "from=\"from@example.org\" to=\"nobody@example.org\" client=\"127.0.0.1\" "
                                "reply=\"550 5.1.1 No such user\""})
    EXPECT_NE(log.find(part), std::string::npos) << log;
}

TEST_F(ServerTest, WhoHasNoRoomIsRefusedAtRcpt) {
  start();
  LmtpClient client(port_);
  expect_refused_for_room(client);
}

TEST_F(ServerTest, AlsoWhereTheUserIsAtHand) {
  users_.at_hand = true;
  start();
  LmtpClient client(port_);
  expect_refused_for_room(client);
}

// The user database does not answer. Known users get mail, and are still refused if they are over quota.
TEST_F(ServerTest, LookUpsThatStandStillHoldUpNobodyAtHand) {
  config_.lookups_max = 2;
  users_.at_hand = true;
  start();
  std::vector<std::unique_ptr<LmtpClient>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::make_unique<LmtpClient>(port_));
    waiting.back()->begin();
    waiting.back()->ask("MAIL FROM:<>\r\n");
    waiting.back()->send("RCPT TO:<waits@d>\r\n");
  }
  users_.gate.wait_for_waiting(2);
  LmtpClient client(port_);
  expect_refused_for_room(client);
  users_.gate.release();
  for (auto& each : waiting) EXPECT_EQ(each->reply().substr(0, 9), "250 2.1.5");
}

// A client without a reply to its message would send the message again.
TEST_F(ServerTest, AMessagesReplyDoesNotWaitForALookUpBehindIt) {
  start();
  LmtpClient client(port_);
  client.begin();
  EXPECT_EQ(client.ask("MAIL FROM:<>\r\n").substr(0, 3), "250");
  EXPECT_EQ(client.ask("RCPT TO:<ann@example.org>\r\n").substr(0, 3), "250");
  client.send("BDAT 5 LAST\r\nx\r\n\r\nMAIL FROM:<>\r\nRCPT TO:<waits@d>\r\n");
  users_.gate.wait_for_waiting(1);
  EXPECT_EQ(client.reply().substr(0, 9), "250 2.0.0");
  users_.gate.release();
  EXPECT_EQ(client.reply().substr(0, 9), "250 2.1.0");
  EXPECT_EQ(client.reply().substr(0, 9), "250 2.1.5");
}

TEST_F(ServerTest, MailboxesThatStandStillHoldUpNoLookUp) {
  config_.rooms_max = 1;
  start();
  LmtpClient waiting(port_);
  waiting.begin();
  waiting.ask("MAIL FROM:<>\r\n");
  waiting.send("RCPT TO:<quota-waits@d>\r\n");
  mailboxes_.gate.wait_for_waiting(1);
  LmtpClient other(port_);
  other.begin();
  other.ask("MAIL FROM:<>\r\n");
  EXPECT_EQ(other.ask("RCPT TO:<ann@d>\r\n").substr(0, 9), "250 2.1.5");
  EXPECT_EQ(other.ask("RCPT TO:<nobody@d>\r\n").substr(0, 9), "550 5.1.1");
  mailboxes_.gate.release();
  EXPECT_EQ(waiting.reply().substr(0, 9), "250 2.1.5");
}

TEST_F(ServerTest, DeliveriesThatStandStillHoldUpNoLookUp) {
  config_.deliveries_max = 1;
  start();
  LmtpClient busy(port_);
  hold_deliveries(busy, {"ann@example.org"}, 1);
  LmtpClient other(port_);
  other.begin();
  other.ask("MAIL FROM:<>\r\n");
  EXPECT_EQ(other.ask("RCPT TO:<nobody@example.org>\r\n").substr(0, 9), "550 5.1.1");
  deliverer_.release();
  EXPECT_EQ(busy.reply().substr(0, 3), "250");
}

TEST_F(ServerTest, BeyondTheConnectionLimit) {
  config_.connections_max = 1;
  start();
  LmtpClient first(port_);
  first.begin();
  LmtpClient second(port_);
  EXPECT_EQ(second.reply().substr(0, 9), "421 4.3.2");
  EXPECT_TRUE(second.at_end());
  EXPECT_EQ(first.ask("QUIT\r\n").substr(0, 3), "221");
  EXPECT_TRUE(first.at_end());
}

TEST_F(ServerTest, AnIdleConnectionIsTold) {
  config_.idle_timeout = 20ms;
  start();
  LmtpClient client(port_);
  EXPECT_EQ(client.reply().substr(0, 3), "220");
  EXPECT_EQ(client.reply().substr(0, 9), "421 4.4.2");
  EXPECT_TRUE(client.at_end());
}

// The service manager owns the socket, so the end of the server does not close it.
TEST_F(ServerTest, AnAdoptedSocketOutlivesTheServer) {
  std::vector<Fd> held;
  auto bound = Listener::bind({"127.0.0.1:0", "127.0.0.1", 0, "", 0});
  ASSERT_TRUE(bound);
  ListenAddress address{"tcp", "127.0.0.1", bound->port(), "", 0};
  for (int round = 0; round < 2; ++round) {
    std::vector<Fd> passed;
    passed.emplace_back(::fcntl(bound->fd(), F_DUPFD_CLOEXEC, 0));
    auto adopted = Listener::adopt(address, passed);
    ASSERT_TRUE(adopted && *adopted) << "round " << round;
    std::vector<Listener> listeners;
    listeners.push_back(std::move(**adopted));
    auto server = Server::create(config_, std::move(listeners), users_, deliverer_, clock_, random_);
    ASSERT_TRUE(server) << server.error().message;
    std::thread thread([&] { (void)(*server)->run(); });
    LmtpClient client(bound->port());
    EXPECT_EQ(client.reply().substr(0, 3), "220") << "round " << round;
    (*server)->stop();
    thread.join();
  }
  LmtpClient waiting(bound->port());  // waits in the backlog for the next server
  EXPECT_TRUE(waiting.try_send("LHLO c\r\n"));
}

// A client that keeps sending is never idle.
TEST_F(ServerTest, AMessageThatNeverEndsIsCutOff) {
  config_.idle_timeout = 2s;
  config_.transaction_timeout = 1s;
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org"});
  while (client.try_send("Subject: and on\r\n")) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(client.reply().substr(0, 9), "421 4.4.2");
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(ServerTest, OneAddressMayNotHaveAllConnections) {
  config_.connections_per_address_max = 2;
  start();
  auto first = std::make_unique<LmtpClient>(port_);
  first->begin();
  LmtpClient second(port_);
  second.begin();
  LmtpClient third(port_);
  EXPECT_EQ(third.reply().substr(0, 9), "421 4.7.0");
  EXPECT_TRUE(third.at_end());
  std::vector<std::unique_ptr<LmtpClient>> local;
  for (int i = 0; i < 4; ++i) local.push_back(std::make_unique<LmtpClient>(path()));
  for (auto& client : local) client->begin();
  EXPECT_EQ(first->ask("QUIT\r\n").substr(0, 3), "221");
  first.reset();
  std::string greeting;
  do greeting = LmtpClient(port_).reply();  // the server sees the end of the first connection a moment later
  while (greeting.substr(0, 3) == "421");
  EXPECT_EQ(greeting.substr(0, 3), "220");
}

TEST_F(ServerTest, ADeliveryIsNotIdleness) {
  config_.idle_timeout = 1s;
  start();
  deliverer_.hold();
  LmtpClient client(port_);
  client.send("LHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<ann@example.org>\r\nDATA\r\n.\r\nQUIT\r\n");
  deliverer_.wait_for_waiting(1);
  // An idle connection gets 421 after that time. The delivery must not end before.
  LmtpClient idle(port_);
  EXPECT_EQ(idle.reply().substr(0, 3), "220");
  EXPECT_EQ(idle.reply().substr(0, 3), "421");
  deliverer_.release();
  for (const char* code : {"220", "250", "250", "250", "354", "250", "221"})
    EXPECT_EQ(client.reply().substr(0, 3), code);
}

TEST_F(ServerTest, ALargeMessageGoesToAFile) {
  config_.body_memory = 1000;
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org"});
  std::string text;
  while (text.size() < 300'000) text += "A line of a large message, again and again.\r\n";
  EXPECT_EQ(client.ask(text + ".\r\n").substr(0, 3), "250");
  auto delivered = deliverer_.delivered();
  ASSERT_EQ(delivered.size(), 1u);
  EXPECT_FALSE(delivered[0].in_memory);
  EXPECT_TRUE(delivered[0].text == text);
}

TEST_F(ServerTest, AnOversizeMessageIsRefusedForEachRecipient) {
  config_.session.message_bytes_max = 2000;
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org", "bob@example.org"});
  std::string text;
  while (text.size() < 5000) text += "A line.\r\n";
  EXPECT_EQ(client.ask(text + ".\r\n").substr(0, 9), "552 5.3.4");
  EXPECT_EQ(client.reply().substr(0, 9), "552 5.3.4");
  client.envelope({"ann@example.org"});
  EXPECT_EQ(client.ask(message).substr(0, 3), "250") << "command and reply match";
}

TEST_F(ServerTest, WithoutMemoryAMessageGoesToAFileAndWithoutRoomThereItIsDeferred) {
  config_.body_memory = 4000;
  config_.body_memory_total = 12'000;  // includes the memory for a recipient; a quarter is reserved for
                                       // recipients
  config_.body_disk_total = 4000;
  start();
  deliverer_.hold();
  LmtpClient first(port_);
  first.begin();
  first.envelope({"ann@example.org"});
  std::string text(3900, 'x');
  first.send("\r\n" + text + "\r\n.\r\n");
  deliverer_.wait_for_waiting(1);
  LmtpClient second(port_);
  second.begin();
  second.envelope({"bob@example.org"});
  second.send("\r\n" + text + "\r\n.\r\n");
  deliverer_.wait_for_waiting(2);
  LmtpClient third(port_);
  third.begin();
  third.envelope({"carl@example.org"});
  EXPECT_EQ(third.ask("\r\n" + text + "\r\n.\r\n").substr(0, 9), "452 4.3.1");
  deliverer_.release();
  EXPECT_EQ(first.reply().substr(0, 3), "250");
  EXPECT_EQ(second.reply().substr(0, 3), "250");
  second.envelope({"bob@example.org"});
  EXPECT_EQ(second.ask("\r\n" + text + "\r\n.\r\n").substr(0, 3), "250");
}

TEST_F(ServerTest, AClientThatDisappearsInTheMessageLeavesNothing) {
  start();
  {
    LmtpClient client(port_);
    client.begin();
    client.envelope({"ann@example.org"});
    client.send("Subject: x\r\n\r\nhalf of");
  }
  LmtpClient client(port_);
  client.begin();
  client.envelope({"bob@example.org"});
  EXPECT_EQ(client.ask(message).substr(0, 3), "250");
  stop();
  auto delivered = deliverer_.delivered();
  ASSERT_EQ(delivered.size(), 1u);
  EXPECT_EQ(delivered[0].to, "bob@example.org");
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(ServerTest, AClientThatDisappearsDuringDeliveryHurtsNobody) {
  start();
  deliverer_.hold();
  {
    LmtpClient client(port_);
    client.begin();
    client.envelope({"ann@example.org", "bob@example.org"});
    client.send(message);
    deliverer_.wait_for_waiting(2);
  }
  deliverer_.release();
  EXPECT_EQ(deliverer_.wait_for_delivered(2).size(), 2u);
  stop();
  EXPECT_EQ(server_->connections(), 0u);
}

// The MTA sends the message again, so a delivery now would duplicate it.
TEST_F(ServerTest, WhatHasNotBegunIsNotDeliveredForAClientThatLeft) {
  config_.deliveries_max = 1;
  start();
  LmtpClient busy(port_);
  hold_deliveries(busy, {"ann@example.org"}, 1);
  {
    LmtpClient impatient(port_);
    impatient.begin();
    impatient.envelope({"bob@example.org"});
    impatient.send(message);
  }
  LmtpClient other(port_);  // one thread serves both, so an answer here means that it has seen the end there
  other.begin();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(other.ask("NOOP\r\n").substr(0, 3), "250");
  deliverer_.release();
  EXPECT_EQ(busy.reply().substr(0, 3), "250");
  stop();
  ASSERT_EQ(deliverer_.delivered().size(), 1u);
  EXPECT_EQ(deliverer_.delivered()[0].to, "ann@example.org");
}

// Exim does this with PIPELINING: it sends QUIT after the message and closes its sending side.
TEST_F(ServerTest, WhoHasSaidQuitAheadAndClosedTheirHalfWaitsForTheReplies) {
  for (const char* last : {"QUIT\r\n", "RSET\r\nquit\r\n"}) {
    config_.deliveries_max = 1;
    start();
    LmtpClient busy(port_);
    hold_deliveries(busy, {"ann@example.org"}, 1);
    LmtpClient patient(port_);
    patient.begin();
    patient.envelope({"bob@example.org"});
    patient.send(std::string(message) + last);
    patient.finish_sending();
    LmtpClient other(port_);
    other.begin();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(other.ask("NOOP\r\n").substr(0, 3), "250");
    deliverer_.release();
    EXPECT_EQ(patient.reply().substr(0, 3), "250") << last;
    if (last[0] == 'R') {
      EXPECT_EQ(patient.reply().substr(0, 3), "250");
    }
    EXPECT_EQ(patient.reply().substr(0, 3), "221");
    EXPECT_TRUE(patient.at_end());
    stop();
  }
}

TEST_F(ServerTest, StopEndsIdleConnectionsAndFinishesDeliveries) {
  start();
  LmtpClient idle(port_);
  idle.begin();
  LmtpClient receiving(port_);
  receiving.begin();
  receiving.envelope({"carl@example.org"});
  receiving.send("Subject: x\r\n");
  LmtpClient busy(port_);
  hold_deliveries(busy, {"ann@example.org", "bob@example.org"}, 2);
  server_->stop();
  EXPECT_EQ(idle.reply().substr(0, 9), "421 4.3.2");
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(receiving.reply().substr(0, 3), "421");
  deliverer_.release();
  EXPECT_EQ(busy.reply().substr(0, 3), "250");
  EXPECT_EQ(busy.reply().substr(0, 3), "250");
  EXPECT_EQ(busy.reply().substr(0, 3), "421");
  EXPECT_TRUE(busy.at_end());
  thread_.join();
  EXPECT_TRUE(end_.in_order());
  EXPECT_EQ(deliverer_.delivered().size(), 2u);
}

TEST_F(ServerTest, StopBeginsNoDelivery) {
  config_.deliveries_max = 1;
  start();
  LmtpClient busy(port_);
  hold_deliveries(busy, {"ann@example.org", "bob@example.org"}, 1);
  LmtpClient queued(port_);
  queued.begin();
  queued.envelope({"carl@example.org"});
  queued.send(std::string(message) + "NOOP\r\n");
  LmtpClient other(port_);  // one thread serves both, so an answer here means that it has seen the message
  other.begin();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(other.ask("NOOP\r\n").substr(0, 3), "250");
  server_->stop();
  EXPECT_EQ(queued.reply().substr(0, 9), "451 4.3.2") << "while the only worker is busy";
  EXPECT_EQ(queued.reply().substr(0, 9), "421 4.3.2");
  deliverer_.release();
  EXPECT_EQ(busy.reply().substr(0, 3), "250");
  EXPECT_EQ(busy.reply().substr(0, 9), "451 4.3.2");
  EXPECT_EQ(busy.reply().substr(0, 9), "421 4.3.2");
  expect_end({&busy, &queued, &other});
  ASSERT_EQ(deliverer_.delivered().size(), 1u);
}

// The spool is suspended and does not resume.
TEST_F(ServerTest, StopHasABound) {
  config_.stop_timeout = config_.abort_grace = 0ms;
  config_.io_threads = 2;
  start();
  LmtpClient busy(port_);
  hold_deliveries(busy, {"ann@example.org", "bob@example.org"}, 2);
  server_->stop();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(busy.reply().substr(0, 9), "451 4.3.2")
        << "no 250 for a delivery that the stop did not wait for";
  EXPECT_EQ(busy.reply().substr(0, 9), "421 4.3.2");
  EXPECT_TRUE(busy.at_end());
  busy.hang_up();
  thread_.join();
  EXPECT_FALSE(end_.in_order());
  EXPECT_EQ(end_.deliveries_left, 2u);
  EXPECT_EQ(end_.connections_left, 0u);
}

TEST_F(ServerTest, AbortEndsAgentsAndWaitsForNothingElse) {
  std::atomic<int> told = 0;
  config_.on_abort = [&] { ++told, deliverer_.release(); };  // an agent that is killed
  start();
  LmtpClient busy(port_);
  hold_deliveries(busy, {"ann@example.org"}, 1);
  server_->stop();
  server_->abort();
  server_->abort();
  EXPECT_EQ(busy.reply().substr(0, 3), "250") << "a delivery that has ended in time reports its result";
  EXPECT_EQ(busy.reply().substr(0, 9), "421 4.3.2");
  busy.hang_up();
  thread_.join();
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(end_.aborted);
  EXPECT_EQ(end_.deliveries_left, 0u);
}

// A client that reads no replies does not delay the end.
TEST_F(ServerTest, AbortLeavesConnectionsThatTakeNothing) {
  config_.abort_grace = 0ms;
  start();
  LmtpClient busy(port_);
  hold_deliveries(busy, {"ann@example.org"}, 1);
  server_->abort();
  thread_.join();
  EXPECT_EQ(end_.deliveries_left, 1u);
  EXPECT_EQ(end_.connections_left, 1u);
}

// A new server has taken over, and this server drains.
TEST_F(ServerTest, DrainWaitsForTransactions) {
  for (auto time : {std::chrono::milliseconds(0), std::chrono::milliseconds(3'600'000)}) {
    config_.drain_time = time;
    config_.drain_idle = 0ms;
    config_.io_threads = 2;
    start();
    LmtpClient idle(port_), mail(port_), silent(port_);
    idle.begin(), mail.begin();
    EXPECT_EQ(mail.ask("MAIL FROM:<a@example.org>\r\n").substr(0, 3), "250");
    EXPECT_EQ(silent.reply().substr(0, 3), "220");
    server_->drain();
    EXPECT_EQ(idle.reply().substr(0, 9), "421 4.3.2");
    EXPECT_EQ(silent.reply().substr(0, 9), "421 4.3.2");
    EXPECT_EQ(mail.ask("RCPT TO:<ann@example.org>\r\n").substr(0, 3), "250");
    EXPECT_EQ(mail.ask("DATA\r\n").substr(0, 3), "354");
    EXPECT_EQ(mail.ask(message).substr(0, 3), "250");
    EXPECT_EQ(mail.reply().substr(0, 9), "421 4.3.2");
    expect_end({&idle, &mail, &silent});
  }
}

TEST_F(ServerTest, DrainLeavesAClientThatSaysSomething) {
  auto client = drain_for_ever();
  for (int i = 0; i < 3; ++i) {
    client->envelope({"ann@example.org"});
    EXPECT_EQ(client->ask(message).substr(0, 3), "250");
  }
  EXPECT_EQ(client->ask("QUIT\r\n").substr(0, 3), "221");
  expect_end({client.get()});
}

// Such a server would answer every command with 451.
TEST_F(ServerTest, ADrainInAHurryWaitsForNoClientThatSaysSomething) {
  for (bool before : {true, false}) {
    config_.drain_time = config_.drain_idle = std::chrono::hours(1);
    if (before) start(), server_->hurry();
    auto client = before ? std::make_unique<LmtpClient>(port_) : drain_for_ever();
    if (before) client->begin();
    client->envelope({"ann@example.org"});
    if (before)
      server_->drain();
    else
      server_->hurry();
    EXPECT_EQ(client->ask(message).substr(0, 3), "250");
    EXPECT_EQ(client->reply().substr(0, 9), "421 4.3.2");
    expect_end({client.get()});
  }
}

// Without it, the client would report the server as unreachable.
TEST_F(ServerTest, ADrainInAHurryLeavesAClientItsFirstTransaction) {
  auto client = drain_for_ever();
  server_->hurry();
  LmtpClient* one = client.get();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one->ask("NOOP\r\n").substr(0, 3), "250");
  one->envelope({"ann@example.org"});
  EXPECT_EQ(one->ask(message).substr(0, 3), "250");
  EXPECT_EQ(one->reply().substr(0, 9), "421 4.3.2");
  expect_end({one});
}

TEST_F(ServerTest, StopEndsADrain) {
  auto client = drain_for_ever();
  server_->stop();
  EXPECT_EQ(client->reply().substr(0, 9), "421 4.3.2");
  expect_end({client.get()});
}

// No worker is ever available.
TEST_F(ServerTest, ADeliveryThatDoesNotBeginInTimeIsTemporary) {
  config_.deliveries_max = 0;
  config_.queue_time = 1ms;
  start();
  LmtpClient client(port_);
  client.begin();
  for (int i = 0; i < 2; ++i) {
    client.envelope({"ann@example.org", "bob@example.org"});
    EXPECT_EQ(client.ask(message).substr(0, 9), "451 4.3.2");
    EXPECT_EQ(client.reply().substr(0, 9), "451 4.3.2");
  }
  stop();
  EXPECT_TRUE(deliverer_.delivered().empty());
}

TEST_F(ServerTest, SeveralIoThreadsServeManyConnections) {
  config_.io_threads = 3;
  start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 9; ++i)
    clients.emplace_back([this] {
      LmtpClient client(port_);
      client.begin();
      for (int n = 0; n < 50; ++n) {
        client.envelope({"ann@example.org"});
        EXPECT_EQ(client.ask(message).substr(0, 3), "250");
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(deliverer_.delivered().size(), 450u);
}

// The client sends commands and never reads. The server must stop reading from it, and continue.
TEST_F(ServerTest, AClientThatTakesNoRepliesIsNotBufferedFor) {
  config_.idle_timeout = 100ms;
  start();
  LmtpClient client(port_);
  client.send("LHLO c\r\n");
  std::string noops;
  for (int i = 0; i < 2000; ++i) noops += "NOOP\r\n";
  bool refused = false;
  for (int i = 0; i < 100'000 && !refused; ++i) refused = !client.try_send(noops);
  EXPECT_TRUE(refused) << "the server took 1.2 GB of commands without its replies being read";
}

}  // namespace
}  // namespace twinloft::lmtpd
