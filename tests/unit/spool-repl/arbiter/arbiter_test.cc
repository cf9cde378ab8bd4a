// The layer between the owner's thread and a store.
#include "twinloft/spool-repl/arbiter/arbiter.h"

#include <gtest/gtest.h>

#include <atomic>

#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::arbiter {
namespace {

using core::ArbiterAnswer;
using core::ArbiterRequest;
using Outcome = ArbiterAnswer::Outcome;

// A store that answers when the test says so.
struct SlowStore : Store {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Outcome> answers;
  std::vector<core::Token> begun;
  int under_way = 0, under_way_max = 0;
  bool cancelled = false;

  ArbiterAnswer perform(const ArbiterRequest& r) override {
    std::unique_lock lock(mutex);
    begun.push_back(r.token);
    under_way_max = std::max(under_way_max, ++under_way);
    changed.notify_all();
    changed.wait(lock, [&] { return cancelled || !answers.empty(); });
    --under_way;
    if (cancelled) return {r.token, Outcome::unknown, std::nullopt, "cancelled"};
    Outcome outcome = answers.front();
    answers.pop_front();
    return {r.token, outcome, std::nullopt, outcome == Outcome::unknown ? "it is silent" : ""};
  }
  void cancel() override {
    std::lock_guard lock(mutex);
    cancelled = true;
    changed.notify_all();
  }
  void let(Outcome outcome) {
    std::lock_guard lock(mutex);
    answers.push_back(outcome);
    changed.notify_all();
  }
  void wait_until_begun(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return begun.size() >= count; });
  }
};

struct ArbiterTest : testing::Test {
  OsClock clock;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 64}).value();
  std::vector<ArbiterAnswer> answers;
  std::thread::id answered_on;
  SlowStore* store = new SlowStore;
  std::unique_ptr<Arbiter> arbiter = std::make_unique<Arbiter>(*loop, std::unique_ptr<Store>(store),
                                                               [this](ArbiterAnswer a) {
                                                                 answers.push_back(std::move(a));
                                                                 answered_on = std::this_thread::get_id();
                                                               });
  void ask(core::Token token) { arbiter->ask({token, true, std::nullopt, {}}); }
  void wait_for_answers(std::size_t count) {
    while (answers.size() < count) ASSERT_TRUE(loop->turn(std::chrono::seconds(10)));
  }
};

TEST_F(ArbiterTest, AnswersOnTheLoopOneAtATimeInOrder) {
  for (core::Token t : {1, 2, 3}) ask(t);
  store->wait_until_begun(1);
  EXPECT_TRUE(answers.empty());
  for (int i = 0; i < 3; ++i) store->let(Outcome::granted);
  wait_for_answers(3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(answers[i].token, i + 1);
  EXPECT_EQ(answered_on, std::this_thread::get_id());
  EXPECT_EQ(store->under_way_max, 1);
}

TEST_F(ArbiterTest, TroubleIsTheLastUnknownAnswersReason) {
  EXPECT_EQ(arbiter->trouble(), "");
  ask(1);
  store->let(Outcome::unknown);
  wait_for_answers(1);
  EXPECT_EQ(arbiter->trouble(), "it is silent");
  ask(2);
  store->let(Outcome::refused);
  wait_for_answers(2);
  EXPECT_EQ(arbiter->trouble(), "") << "a refusal is an answer";
}

TEST_F(ArbiterTest, TooManyAreAnsweredAtOnce) {
  ask(1);
  store->wait_until_begun(1);
  for (core::Token t = 2; t < 2 + Arbiter::waiting_max; ++t) ask(t);
  ask(99);
  wait_for_answers(1);
  EXPECT_EQ(answers[0].token, 99u);
  EXPECT_EQ(answers[0].outcome, Outcome::unknown);
  for (std::size_t i = 0; i <= Arbiter::waiting_max; ++i) store->let(Outcome::granted);
  wait_for_answers(2 + Arbiter::waiting_max);
  EXPECT_EQ(answers.back().token, 1 + Arbiter::waiting_max);
}

TEST_F(ArbiterTest, EndsWhileARequestIsUnderWay) {
  ask(1);
  ask(2);
  store->wait_until_begun(1);
  arbiter.reset();
  bool last = false;
  loop->post([&] { last = true; });
  while (!last) ASSERT_TRUE(loop->turn(std::chrono::seconds(10)));
  EXPECT_TRUE(answers.empty());
}

TEST(ArbiterStores, ManualNeedsNone) {
  OsClock clock;
  auto none = make_store({}, Uuid{}, 1, clock);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr);
}

}  // namespace
}  // namespace twinloft::repl::arbiter
