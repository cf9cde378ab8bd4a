#include "twinloft/lmtpd/quota_status/quota_status.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace twinloft::lmtpd {
namespace {

// Each connection has its own thread. It sends the answers of the next list, one for each question, and ends.
struct Service final : Connector {
  std::vector<std::vector<std::string>> connections;
  std::atomic<std::size_t> made{0};
  std::vector<std::thread> threads;
  std::vector<int> ends;
  std::mutex mutex;

  Result<Fd> connect(std::size_t target) override {
    EXPECT_EQ(target, 7u);
    std::size_t index = made++;
    if (index >= connections.size()) return fail(Errc::unavailable, "nobody is there");
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    std::lock_guard lock(mutex);
    ends.push_back(pair[1]);
    threads.emplace_back([this, fd = pair[1], answers = connections[index]] { serve(fd, answers); });
    return Fd(pair[0]);
  }
  void serve(int fd, const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) {
      std::string question;
      while (!question.ends_with("\n\n")) {
        char c;
        ssize_t n = ::recv(fd, &c, 1, 0);
        if (n < 0 && errno == EAGAIN) {
          std::this_thread::yield();
          continue;
        }
        if (n <= 0) return;
        question += c;
      }
      if (answer == "never") return;
      (void)::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
    (void)::shutdown(fd, SHUT_RDWR);
  }
  ~Service() override {
    for (int end : ends) (void)::shutdown(end, SHUT_RDWR);
    for (std::thread& thread : threads) thread.join();
    for (int end : ends) ::close(end);
  }
};

const OsClock os_clock;

// The system's clock plus a time that the test sets.
struct LaterClock final : Clock {
  std::atomic<std::int64_t> later_ms{0};
  Instant now() const override { return os_clock.now() + std::chrono::milliseconds(later_ms.load()); }
  WallTime wall() const override { return os_clock.wall(); }
};

struct QuotaStatusTest : testing::Test {
  LaterClock clock;
  Service service;
  QuotaStatusConfig config;
  User ann;
  QuotaStatusTest() {
    config.target.text = "unix:/q";
    ann.name = "ann@example.org";
    config.answer_timeout = std::chrono::seconds(20);
  }
};

constexpr const char* yes = "action=DUNNO\n\n";
constexpr const char* full = "action=552 5.2.2 Full\n\n";

TEST_F(QuotaStatusTest, OneConnectionServesManyQuestions) {
  service.connections = {{yes, full, "action=552 5.2.3 Large\n\n", "never"}};
  QuotaStatus status(config, service, 7, clock);
  EXPECT_EQ(status.room(ann, 1), Room::enough);
  EXPECT_EQ(status.room(ann, 1), Room::full);
  EXPECT_EQ(status.room(ann, 1), Room::never);
  EXPECT_EQ(service.made, 1u);
}

TEST_F(QuotaStatusTest, AConnectionThatWasClosedMeanwhileIsReplaced) {
  service.connections = {{yes}, {full, "never"}};
  QuotaStatus status(config, service, 7, clock);
  EXPECT_EQ(status.room(ann, 1), Room::enough);
  EXPECT_EQ(status.room(ann, 1), Room::full);
  EXPECT_EQ(service.made, 2u);
}

TEST_F(QuotaStatusTest, AConnectionThatHasWaitedTooLongIsReplaced) {
  service.connections = {{yes, "never"}, {full, "never"}};
  QuotaStatus status(config, service, 7, clock);
  EXPECT_EQ(status.room(ann, 1), Room::enough);
  clock.later_ms += 31'000;
  EXPECT_EQ(status.room(ann, 1), Room::full);
  EXPECT_EQ(service.made, 2u);
}

TEST_F(QuotaStatusTest, WhoIsNotThereIsLeftAloneForAWhile) {
  QuotaStatus status(config, service, 7, clock);
  auto room = status.room(ann, 1);
  ASSERT_FALSE(room);
  EXPECT_EQ(room.error().message,
            "Dovecot's quota-status at unix:/q, asked for ann@example.org: nobody is there");
  EXPECT_EQ(service.made, 1u);
  room = status.room(ann, 1);
  ASSERT_FALSE(room);
  EXPECT_NE(room.error().message.find("the next attempt is soon"), std::string::npos) << room.error().message;
  EXPECT_EQ(service.made, 1u);
  service.connections = {{}, {yes, "never"}};
  clock.later_ms += 1'001;
  EXPECT_EQ(status.room(ann, 1), Room::enough);
}

TEST_F(QuotaStatusTest, HalfAnAnswerIsNone) {
  service.connections = {{"action=DUNNO\n"}, {std::string(5000, 'x') + "\n\n"}, {"hello\n\n", "never"}};
  QuotaStatus status(config, service, 7, clock);
  for (const char* problem : {"its answer is incomplete", "its answer has more than", "it answers \"\""}) {
    auto room = status.room(ann, 1);
    ASSERT_FALSE(room);
    EXPECT_NE(room.error().message.find(problem), std::string::npos) << room.error().message;
    clock.later_ms += 31'000;
  }
}

TEST_F(QuotaStatusTest, NoAnswerInTimeIsAnError) {
  config.answer_timeout = std::chrono::milliseconds(50);
  service.connections = {{"never"}, {"never"}, {"never"}, {"never"}};
  QuotaStatus status(config, service, 7, clock);
  for (int i = 0; i < 3; ++i) {
    auto room = status.room(ann, 1);
    ASSERT_FALSE(room);
    EXPECT_EQ(room.error().code, Errc::timeout);
  }
  EXPECT_FALSE(status.room(ann, 1));
  EXPECT_EQ(service.made, 3u) << "after three late answers, no question for a while";
}

// A large mailbox may be slow, and others are not.
TEST_F(QuotaStatusTest, OneLateAnswerStopsNoOtherQuestion) {
  config.answer_timeout = std::chrono::seconds(2);
  service.connections = {{"never"}, {yes}};
  QuotaStatus status(config, service, 7, clock);
  EXPECT_FALSE(status.room(ann, 1));
  EXPECT_TRUE(status.room(ann, 1));
}

// Questions beyond the limit wait for a free connection.
TEST_F(QuotaStatusTest, NoMoreConnectionsThanConfigured) {
  config.connections_max = 3;
  service.connections.assign(20, std::vector<std::string>(100, yes));
  QuotaStatus status(config, service, 7, clock);
  std::vector<std::future<bool>> asked;
  for (int i = 0; i < 16; ++i)
    asked.push_back(std::async(std::launch::async, [&] { return status.room(ann, 1) == Room::enough; }));
  for (auto& one : asked) EXPECT_TRUE(one.get());
  EXPECT_LE(service.made, 3u);
}

TEST_F(QuotaStatusTest, AUserWhoIsNoAddressIsNotAsked) {
  ann.name = "ann\nsize=1";
  QuotaStatus status(config, service, 7, clock);
  EXPECT_FALSE(status.room(ann, 1));
  EXPECT_EQ(service.made, 0u);
}

}  // namespace
}  // namespace twinloft::lmtpd
