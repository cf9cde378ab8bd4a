// The use of a next hop's connections: real streams, and a hop whose answers a test gives.
#include "hop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

namespace twinloft::lmtpd {
namespace {

class SetClock final : public Clock {
 public:
  Instant now() const override { return Instant{} + ahead_.load(); }
  WallTime wall() const override { return {}; }
  void pass(std::chrono::milliseconds time) { ahead_ = ahead_.load() + time; }

 private:
  std::atomic<std::chrono::milliseconds> ahead_{};
};

// Each connection is a pair of sockets, with a thread that answers.
class SpokenFor final : public Connector {
 public:
  // The answer to a line, or to "message" after the end of a message. nullopt: the hop disconnects.
  using Answer = std::function<std::optional<std::string>(const std::string& line)>;
  Answer answer = usual;
  std::atomic<int> connections = 0, mails = 0, quits = 0;
  std::chrono::milliseconds takes{0};  // the time to make a connection

  ~SpokenFor() override {
    for (std::thread& thread : threads_) thread.join();
  }
  Result<Fd> connect(std::size_t) override {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    EXPECT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    ++connections;
    std::this_thread::sleep_for(takes);
    std::lock_guard lock(mutex_);
    threads_.emplace_back([this, end = Fd(ends[1])] { serve(end.get()); });
    return Fd(ends[0]);
  }
  static std::optional<std::string> usual(const std::string& line) {
    if (line.starts_with("LHLO")) return "250-hop\r\n250 XCLIENT ADDR\r\n";
    if (line.starts_with("XCLIENT")) return "220 hop\r\n";
    if (line == "DATA") return "354 go\r\n";
    return "250 2.0.0 ok\r\n";
  }

 private:
  void serve(int fd) {
    auto say = [&](const std::string& text) {
      return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
    };
    if (!say("220 hop\r\n")) return;
    bool in_message = false;
    for (std::string line, byte(1, ' '); ::recv(fd, byte.data(), 1, 0) == 1;) {
      line += byte;
      if (!line.ends_with("\r\n")) continue;
      line.resize(line.size() - 2);
      if (in_message && line != ".") {
        line.clear();
        continue;
      }
      if (line.starts_with("MAIL")) ++mails;
      if (line == "QUIT") ++quits;
      auto reply = answer(in_message ? "message" : line);
      if (!reply || !say(*reply)) return;
      in_message = reply->starts_with("354");
      line.clear();
    }
  }
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

class HopTest : public testing::Test {
 protected:
  HopTest() {
    envelope_.from = "a@example.net";
    envelope_.lhlo = "client.example";
    envelope_.client = "192.0.2.1";
    for (int i = 0; i < 5; ++i) {
      Recipient r;
      r.text = r.user.name = std::string(1, static_cast<char>('a' + i)) + "@example.org";
      envelope_.recipients.push_back(r);
    }
    all_.hostname = "proxy.example";
    config_.spec.name = "store";
    config_.spec.recipients_max = 1;
    body_.memory = "Subject: x\r\n\r\nx\r\n";
    body_.size = body_.memory.size();
  }
  void TearDown() override { hop_.reset(); }
  // Delivers, and returns the codes of the replies.
  std::vector<int> deliver(const GivenUp& given_up = {}) {
    if (!hop_) hop_ = std::make_unique<Hop>(config_, all_, connector_, clock_);
    std::vector<std::size_t> all(envelope_.recipients.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    std::vector<int> codes;
    problems_.clear();
    for (const Hop::Outcome& outcome : hop_->deliver(envelope_, all, body_, "Received: x\n", given_up)) {
      codes.push_back(outcome.reply.code);
      problems_.push_back(outcome.problem);
    }
    return codes;
  }
  using Codes = std::vector<int>;

  SetClock clock_;
  std::mutex mutex_;
  std::vector<std::string> said_;  // the XCLIENT commands
  std::atomic<int> messages_ = 0;
  SpokenFor connector_;
  RouterConfig all_;
  RouterConfig::Hop config_;
  Envelope envelope_;
  MessageBody body_;
  std::vector<std::string> problems_;
  std::unique_ptr<Hop> hop_;
};

TEST_F(HopTest, OneConnectionForAllTransactions) {
  EXPECT_EQ(deliver(), Codes(5, 250));
  EXPECT_EQ(deliver(), Codes(5, 250));
  EXPECT_EQ(connector_.connections, 1);
  EXPECT_EQ(connector_.mails, 10);
}

// The client waits for all replies. It would disconnect during repeated attempts.
TEST_F(HopTest, ATransactionThatFailedIsTheLast) {
  connector_.answer = [](const std::string& line) {
    return line == "message" ? std::nullopt : SpokenFor::usual(line);
  };
  EXPECT_EQ(deliver(), Codes(5, 451));
  EXPECT_EQ(connector_.mails, 1);
  EXPECT_EQ(connector_.connections, 1);
}

TEST_F(HopTest, WhoIsRefusedEndsNothing) {
  connector_.answer = [](const std::string& line) -> std::optional<std::string> {
    if (line == "RCPT TO:<b@example.org>") return "550 5.1.1 nobody\r\n";
    return SpokenFor::usual(line);
  };
  EXPECT_EQ(deliver(), (Codes{250, 550, 250, 250, 250}));
  EXPECT_EQ(connector_.connections, 1);
}

TEST_F(HopTest, NothingIsBegunOnceNobodyWaits) {
  int asked = 0;
  EXPECT_EQ(
      deliver([&] { return ++asked > 2 ? std::optional(Reply{421, "4.3.2", "leaving"}) : std::nullopt; }),
      (Codes{250, 250, 421, 421, 421}));
  EXPECT_EQ(connector_.mails, 2);
  EXPECT_EQ(problems_, (std::vector<std::string>{"", "", "not begun", "not begun", "not begun"}));
}

TEST_F(HopTest, NothingIsBegunAfterItsTime) {
  int asked = 0;
  auto slow = [&] {
    if (++asked == 4) clock_.pass(config_.spec.data_timeout);
    return std::optional<Reply>();
  };
  EXPECT_EQ(deliver(slow), (Codes{250, 250, 250, 451, 451}));
  EXPECT_EQ(problems_[2], "");
  EXPECT_EQ(problems_[3], "the previous transactions took too long");
  EXPECT_EQ(connector_.mails, 3);
}

// XCLIENT keeps the attributes that it does not name. A client without an address must not inherit the
// previous client's.
TEST_F(HopTest, AClientWithoutAddressGetsAConnectionThatHasNone) {
  config_.spec.xclient = true;
  connector_.answer = [this](const std::string& line) {
    std::lock_guard lock(mutex_);
    if (line.starts_with("XCLIENT")) said_.push_back(line);
    return SpokenFor::usual(line);
  };
  EXPECT_EQ(deliver(), Codes(5, 250));
  envelope_.client = "unix";
  EXPECT_EQ(deliver(), Codes(5, 250));
  EXPECT_EQ(connector_.connections, 2);
  envelope_.client = "192.0.2.2";
  EXPECT_EQ(deliver(), Codes(5, 250));
  EXPECT_EQ(connector_.connections, 2) << "an address may be sent on any connection";
  std::lock_guard lock(mutex_);
  EXPECT_EQ(said_, (std::vector<std::string>{"XCLIENT ADDR=192.0.2.1", "XCLIENT ADDR=[UNAVAILABLE]",
                                             "XCLIENT ADDR=192.0.2.2"}));
}

// Dovecot answers 501 to an XCLIENT with a name that it cannot parse.
TEST_F(HopTest, ALocalHopThatRefusesTheClientsNameGetsTheMailWithoutIt) {
  config_.spec.xclient = true;
  envelope_.recipients.resize(1);
  connector_.answer = [](const std::string& line) {
    return line.starts_with("XCLIENT") ? std::optional<std::string>("501 5.5.4 Invalid parameters\r\n")
                                       : SpokenFor::usual(line);
  };
  EXPECT_EQ(deliver(), Codes{451}) << "another server may need the client for its policy";
  EXPECT_EQ(connector_.connections, 1);
  hop_.reset();
  config_.spec.name = local_hop_name;
  EXPECT_EQ(deliver(), Codes{250});
  EXPECT_EQ(connector_.connections, 3);
  EXPECT_EQ(deliver(), Codes{250});
  EXPECT_EQ(connector_.connections, 5) << "a connection without the client's name is for one message";
  connector_.answer = SpokenFor::usual;
  EXPECT_EQ(deliver(), Codes{250});
  EXPECT_EQ(connector_.connections, 6);
}

// Each client needs its own connection. A client with a new name for each message must not use up the hop's
// connections.
TEST_F(HopTest, KeptConnectionsAreNoMoreThanThoseInUseMayBe) {
  config_.spec.xclient = true;
  config_.spec.connections_max = 3;
  connector_.answer = [](const std::string& line) {
    return line.starts_with("LHLO") ? std::optional<std::string>("250-hop\r\n250 XCLIENT ADDR HELO\r\n")
                                    : SpokenFor::usual(line);
  };
  for (int i = 0; i < 10; ++i) {
    envelope_.client = "unix";
    envelope_.lhlo = "c" + std::to_string(i) + ".example";
    EXPECT_EQ(deliver(), Codes(5, 250));
  }
  ASSERT_EQ(connector_.connections, 10);
  while (connector_.quits < 7) ::usleep(1000);
  EXPECT_EQ(deliver(), Codes(5, 250));
  EXPECT_EQ(connector_.connections, 10) << "the newest connections are kept";
  EXPECT_EQ(connector_.quits, 7);
}

// At most four connections are made at a time. The other callers wait for their turn, even longer than the
// time limit of one connection.
TEST_F(HopTest, WhoWaitsForASlowHopIsNotRefused) {
  config_.spec.target.timeout = std::chrono::seconds(1);
  connector_.takes = std::chrono::milliseconds(300);
  hop_ = std::make_unique<Hop>(config_, all_, connector_, clock_);
  std::atomic<int> delivered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i)
    threads.emplace_back([&] {
      std::size_t one = 0;
      for (const Hop::Outcome& outcome : hop_->deliver(envelope_, {&one, 1}, body_, "Received: x\n", {}))
        delivered += outcome.reply.code == 250;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(delivered, 24);
}

TEST_F(HopTest, AnIdleConnectionThatHasEndedIsReplaced) {
  connector_.answer = [this](const std::string& line) -> std::optional<std::string> {
    if (line == "message") ++messages_;
    if (line.starts_with("MAIL") && messages_ == 1 && connector_.connections == 1) return std::nullopt;
    return SpokenFor::usual(line);
  };
  envelope_.recipients.resize(1);
  EXPECT_EQ(deliver(), Codes{250});
  EXPECT_EQ(deliver(), Codes{250});
  EXPECT_EQ(connector_.connections, 2);
  EXPECT_EQ(messages_, 2);
}

}  // namespace
}  // namespace twinloft::lmtpd
