#include "delivery_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "twinloft/base/random.h"

namespace twinloft::lmtpd {
namespace {

using Names = std::vector<std::string>;

class DeliveryQueueTest : public testing::Test {
 protected:
  // message: its number. When the delivery runs, it records the names of its users.
  QueuedDelivery delivery(std::size_t message, Names users, std::uint32_t per_user_max = unlimited_deliveries,
                          SharedLimit shared = {}) {
    return {&messages_.at(message), std::move(shared), per_user_max, std::move(users),
            std::make_shared<const QueuedDelivery::Run>([](const std::vector<std::size_t>&) {})};
  }
  static std::string text(const DeliveryQueue::Turn& turn) {
    std::string out;
    for (const std::string& user : turn.users) out += (out.empty() ? "" : " ") + user;
    return out;
  }
  // All deliveries that may begin now.
  Names begin(DeliveryQueue& queue) {
    Names out;
    while (auto turn = queue.next()) {
      out.push_back(text(*turn));
      running_.push_back(std::move(*turn));
    }
    return out;
  }
  void end_first(DeliveryQueue& queue) {
    queue.ended(running_.front());
    running_.erase(running_.begin());
  }

  std::vector<int> messages_ = std::vector<int>(1000);
  std::vector<DeliveryQueue::Turn> running_;
};

TEST_F(DeliveryQueueTest, ThreadsAreNotExceeded) {
  DeliveryQueue queue(2, 16);
  for (std::size_t i = 0; i < 3; ++i) queue.push(delivery(i, {std::string(1, static_cast<char>('a' + i))}));
  EXPECT_EQ(begin(queue), (Names{"a", "b"}));
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"c"});
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST_F(DeliveryQueueTest, AUserBeyondTheLimitWaitsAndOthersDoNot) {
  DeliveryQueue queue(64, 16);
  for (std::size_t i = 0; i < 5; ++i) queue.push(delivery(i, {"ann"}, 2));
  queue.push(delivery(5, {"bob"}, 2));
  EXPECT_EQ(begin(queue), (Names{"ann", "bob", "ann"})) << "the users take turns";
  EXPECT_EQ(queue.waiting(), 3u);
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"ann"});
}

// 200 deliveries to one mailbox are queued before the delivery to another, and every thread is busy.
TEST_F(DeliveryQueueTest, ABurstForOneUserDelaysNobodyElse) {
  DeliveryQueue queue(4, 16);
  for (std::size_t i = 0; i < 200; ++i) queue.push(delivery(i, {"ann"}, 10));
  EXPECT_EQ(begin(queue), Names(4, "ann"));
  queue.push(delivery(200, {"bob"}, 10));
  queue.push(delivery(201, {"carl"}, 10));
  Names turns;
  for (int i = 0; i < 4; ++i) {
    end_first(queue);
    for (const std::string& user : begin(queue)) turns.push_back(user);
  }
  EXPECT_EQ(turns, (Names{"ann", "bob", "carl", "ann"})) << "each user has its turn";
}

TEST_F(DeliveryQueueTest, ASlowAgentHoldsUpNobodyElse) {
  DeliveryQueue queue(64, 16);
  for (std::size_t i = 0; i < 9; ++i)
    queue.push(delivery(i, {"user" + std::to_string(i)}, 10, {"agent slow", 2}));
  queue.push(delivery(9, {"ann"}, 10));
  EXPECT_EQ(begin(queue), (Names{"user0", "user1", "ann"}));
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"user2"});
}

TEST_F(DeliveryQueueTest, AgentsTogetherHaveALimitToo) {
  DeliveryQueue queue(64, 16);
  for (std::size_t i = 0; i < 4; ++i)
    queue.push(
        delivery(i, {"user" + std::to_string(i)}, 10, {i % 2 ? "agent a" : "agent b", 2, "agents", 3}));
  queue.push(delivery(4, {"ann"}, 10));
  EXPECT_EQ(begin(queue), (Names{"user0", "user1", "user2", "ann"}));
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"user3"});
  while (!running_.empty()) end_first(queue);
  queue.push(delivery(5, {"bob"}, 10, {"agent a", 2, "agents", 3}));
  EXPECT_EQ(begin(queue), Names{"bob"}) << "each place was released";
}

TEST_F(DeliveryQueueTest, OneMessageTakesNoMoreThanItsPart) {
  DeliveryQueue queue(64, 2);
  for (const char* user : {"a", "b", "c", "d"}) queue.push(delivery(0, {user}));
  queue.push(delivery(1, {"d"}));
  queue.push(delivery(1, {"e"}));
  EXPECT_EQ(begin(queue), (Names{"a", "b", "d", "e"})) << "also if a user's first message waits for its part";
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"c"});
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"d"});
}

TEST_F(DeliveryQueueTest, AGroupIsSplitWhereSomeOfItWait) {
  DeliveryQueue queue(64, 16);
  queue.push(delivery(0, {"ann"}, 1));
  EXPECT_EQ(begin(queue), Names{"ann"});
  queue.push(delivery(1, {"ann", "bob", "carl"}, 1));
  queue.push(delivery(2, {"dora", "ann"}, 1));
  EXPECT_EQ(begin(queue), (Names{"bob carl", "dora"}));
  EXPECT_EQ(queue.waiting(), 2u);
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"ann"});
  while (!running_.empty()) end_first(queue);
  EXPECT_EQ(begin(queue), Names{"ann"});
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST_F(DeliveryQueueTest, SaysWhichLimitADeliveryWaitsFor) {
  DeliveryQueue queue(5, 2);
  queue.push(delivery(0, {"ann"}, 1));
  queue.push(delivery(0, {"bob"}, 1, {"agent x", 1, "agents", 2}));
  queue.push(delivery(1, {"carl"}, 1, {"agent y", 2, "agents", 2}));
  begin(queue);
  queue.push(delivery(2, {"ann"}, 1));
  queue.push(delivery(3, {"dora"}, 1, {"agent x", 1, "agents", 2}));
  queue.push(delivery(4, {"dora"}, 1, {"agent y", 2, "agents", 2}));
  queue.push(delivery(0, {"eve"}, 1));
  EXPECT_EQ(begin(queue), Names());
  EXPECT_EQ(queue.hindrance(&messages_[2]), "ann has 1 in flight (limits.deliveries_per_user)");
  EXPECT_EQ(queue.hindrance(&messages_[3]), "agent x has 1 in flight, which is its limit");
  EXPECT_EQ(queue.hindrance(&messages_[4]), "all agents together have 2 in flight (delivery.runs)");
  EXPECT_EQ(queue.hindrance(&messages_[0]),
            "2 of the same message are in flight (limits.deliveries_per_transaction)");
  for (const char* user : {"f", "g", "h"}) queue.push(delivery(5, {user}));
  queue.push(delivery(6, {"i"}));
  begin(queue);
  queue.push(delivery(7, {"j"}));
  EXPECT_EQ(queue.hindrance(&messages_[7]), "all 5 threads are busy (limits.deliveries)");
  EXPECT_EQ(queue.hindrance(&messages_[9]), "");
}

TEST_F(DeliveryQueueTest, WhatIsDroppedNeverBegins) {
  DeliveryQueue queue(64, 16);
  queue.push(delivery(0, {"ann"}, 1));
  EXPECT_EQ(begin(queue), Names{"ann"});
  queue.push(delivery(1, {"ann"}, 1));
  queue.push(delivery(2, {"ann"}, 1));
  queue.push(delivery(1, {"ann", "bob"}, 1, {"agent x", 1}));
  EXPECT_EQ(queue.drop(&messages_[1]).size(), 2u);
  EXPECT_EQ(queue.drop(&messages_[1]).size(), 0u);
  EXPECT_EQ(queue.drop(&messages_[0]).size(), 0u) << "it has begun";
  EXPECT_EQ(begin(queue), Names{});
  end_first(queue);
  EXPECT_EQ(begin(queue), Names{"ann"});
  EXPECT_EQ(queue.waiting(), 0u);
}

// Random messages, ends and drops. The limits are counted again each time. Every member of every delivery
// begins once, or is dropped.
class Model {
 public:
  explicit Model(std::uint64_t seed) : random_(seed) {}
  void run() {
    for (int i = 0; i < 400; ++i) step();
    while (!running_.empty() || queue_.waiting() > 0) {
      begin_all();
      ASSERT_FALSE(running_.empty()) << "a delivery waits without a reason";
      end_one();
    }
    for (const auto& [run, members] : begun_)
      EXPECT_EQ(members.size(), dropped_.contains(run) ? members.size() : pushed_.at(run));
    for (const auto& [run, count] : pushed_) EXPECT_TRUE(begun_.contains(run) || dropped_.contains(run));
  }

 private:
  static constexpr std::uint32_t threads = 6, per_owner = 3, per_user = 2, pool_max = 2;

  void step() {
    std::uint64_t what = random_.below(8);
    if (what == 0)
      drop();
    else if (what < 4 && !running_.empty())
      end_one();
    else
      push();
    begin_all();
  }
  void push() {
    std::set<std::string> users;
    std::uint64_t count = 1 + random_.below(3);
    while (users.size() < count) users.insert(std::string(1, static_cast<char>('a' + random_.below(5))));
    std::uint64_t agent = random_.below(3);
    SharedLimit shared = agent == 0 ? SharedLimit{}
                                    : SharedLimit{"agent " + std::to_string(agent),
                                                  static_cast<std::uint32_t>(agent), "agents", pool_max};
    auto run = std::make_shared<const QueuedDelivery::Run>([](const std::vector<std::size_t>&) {});
    pushed_[run] = users.size();
    queue_.push({&owners_[random_.below(5)], shared, per_user, {users.begin(), users.end()}, run});
  }
  void drop() {
    std::size_t before = queue_.waiting();
    std::vector<QueuedDelivery> dropped = queue_.drop(&owners_[random_.below(5)]);
    EXPECT_EQ(queue_.waiting(), before - dropped.size());
    for (const QueuedDelivery& each : dropped) dropped_.insert(each.run);
  }
  void begin_all() {
    while (auto turn = queue_.next()) {
      ASSERT_FALSE(turn->members.empty());
      EXPECT_FALSE(dropped_.contains(turn->run));
      for (std::size_t member : turn->members)
        EXPECT_TRUE(begun_[turn->run].insert(member).second) << "begun twice";
      running_.push_back(std::move(*turn));
      check();
    }
  }
  void end_one() {
    auto at = running_.begin() + static_cast<std::ptrdiff_t>(random_.below(running_.size()));
    queue_.ended(*at);
    running_.erase(at);
  }
  void check() const {
    std::map<std::string, std::uint32_t> users, agents;
    std::map<const void*, std::uint32_t> owners;
    std::uint32_t pool = 0;
    for (const auto& turn : running_) {
      for (const std::string& user : turn.users) EXPECT_LE(++users[user], per_user);
      EXPECT_LE(++owners[turn.owner], per_owner);
      if (turn.shared.empty()) continue;
      EXPECT_LE(++agents[turn.shared], static_cast<std::uint32_t>(turn.shared.back() - '0'));
      EXPECT_LE(++pool, pool_max);
    }
    EXPECT_LE(running_.size(), threads);
  }

  using Run = std::shared_ptr<const QueuedDelivery::Run>;
  SeededRandom random_;
  DeliveryQueue queue_{threads, per_owner};
  std::vector<int> owners_ = std::vector<int>(5);
  std::vector<DeliveryQueue::Turn> running_;
  std::map<Run, std::size_t> pushed_;
  std::map<Run, std::set<std::size_t>> begun_;
  std::set<Run> dropped_;
};

TEST(DeliveryQueueModel, KeepsEveryLimitAndForgetsNothing) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Model(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace twinloft::lmtpd
