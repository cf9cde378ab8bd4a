// An exception in a connection's handlers ends that connection only, with 421 if it can be sent.
#include <atomic>
#include <stdexcept>

#include "server_fixture.h"

namespace twinloft::lmtpd {
namespace {

// The server's clock. It throws where a test requests it.
class ThrowingClock final : public Clock {
 public:
  Instant now() const override {
    if (throws.exchange(false)) throw std::runtime_error("the clock");
    return clock_.now();
  }
  WallTime wall() const override { return clock_.wall(); }
  mutable std::atomic<bool> throws{false};

 private:
  OsClock clock_;
};

class Exceptions : public ServerTest {
 protected:
  Exceptions() {
    config_.session.recipients.takes_utf8 = [](const User& user) -> bool {
      if (user.name.starts_with("unusual")) throw std::runtime_error("takes_utf8");
      return true;
    };
    config_.session.new_id = [this] {
      if (ids_throw_.exchange(false)) throw std::runtime_error("new_id");
      return std::to_string(++ids_);
    };
  }
  // The server ended this client's connection, and serves other clients.
  void expect_421(LmtpClient& client) {
    EXPECT_EQ(client.reply().substr(0, 9), "421 4.3.0");
    EXPECT_TRUE(client.at_end());
    client.hang_up();
    expect_service();
  }
  void expect_service() {
    LmtpClient other(port_);
    other.begin();
    other.envelope({"bob@example.org"});
    EXPECT_EQ(other.ask(message).substr(0, 3), "250");
    other.hang_up();
    stop();
    EXPECT_TRUE(end_.in_order());
    EXPECT_EQ(server_->connections(), 0u);
  }
  void expect_within_look_up() {
    start();
    LmtpClient client(port_);
    client.begin();
    ASSERT_EQ(client.ask("MAIL FROM:<a@example.org> SMTPUTF8\r\n").substr(0, 3), "250");
    client.send("RCPT TO:<unusual-b\xc3\xbc@example.org>\r\n");
    expect_421(client);
  }
  std::atomic<bool> ids_throw_{false};
  std::atomic<int> ids_{0};
};

TEST_F(Exceptions, WhenALookUpIsDone) {
  expect_within_look_up();
}

TEST_F(Exceptions, WhenAUserIsAtHand) {
  users_.at_hand = true;
  expect_within_look_up();
}

TEST_F(Exceptions, WhenACommandIsObeyed) {
  start();
  LmtpClient client(port_);
  client.begin();
  ids_throw_ = true;
  client.send("MAIL FROM:<a@example.org>\r\n");
  expect_421(client);
}

// The server executes the next command, sent ahead, once the deliveries have ended.
TEST_F(Exceptions, WhenDeliveriesAreDone) {
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org"});
  ids_throw_ = true;
  client.send(std::string(message) + "MAIL FROM:<a@example.org>\r\n");
  EXPECT_EQ(client.reply().substr(0, 3), "250") << "a delivered message must not be sent again";
  expect_421(client);
}

TEST_F(Exceptions, WhenAPartIsStored) {
  config_.body_memory = 10;
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"groupless@example.org"});
  deliverer_.group_throws = true;
  client.send(message);
  expect_421(client);
}

TEST_F(Exceptions, WhenDeliveriesBegin) {
  start();
  LmtpClient client(port_);
  client.begin();
  client.envelope({"ann@example.org"});
  deliverer_.group_throws = true;
  client.send(message);
  expect_421(client);
  EXPECT_EQ(deliverer_.delivered().size(), 1u) << "the delivery never began";
}

class ClockThrows : public ServerTest {
 protected:
  void start_with_clock() {
    auto tcp = Listener::bind({"127.0.0.1:0", "127.0.0.1", 0, "", 0, {}, rules_});
    ASSERT_TRUE(tcp) << tcp.error().message;
    port_ = tcp->port();
    std::vector<Listener> listeners;
    listeners.push_back(std::move(*tcp));
    auto server = Server::create(config_, std::move(listeners), users_, deliverer_, throwing_, random_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    thread_ = std::thread([this] { end_ = server_->run(); });
  }
  ~ClockThrows() override { stop(); }
  ThrowingClock throwing_;
};

// While a client is silent, only its timer reads the clock.
TEST_F(ClockThrows, InATimer) {
  config_.idle_timeout = std::chrono::seconds(2);
  start_with_clock();
  LmtpClient client(port_);
  client.begin();
  throwing_.throws = true;
  EXPECT_EQ(client.reply().substr(0, 4), "421 ");
  EXPECT_TRUE(client.at_end());
  EXPECT_FALSE(throwing_.throws);
  LmtpClient other(port_);
  other.begin();
}

TEST_F(ClockThrows, WhereAConnectionIsTaken) {
  start_with_clock();
  throwing_.throws = true;
  LmtpClient client(port_);
  EXPECT_TRUE(client.at_end());
  LmtpClient other(port_);
  other.begin();
  other.hang_up();
  stop();
  EXPECT_EQ(server_->connections(), 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
