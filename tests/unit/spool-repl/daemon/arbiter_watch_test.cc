#include "arbiter_watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "../support/manual_loop.h"

namespace twinloft::repl::daemon {
namespace {

using Outcome = core::ArbiterAnswer::Outcome;

struct Answers {
  std::atomic<Outcome> outcome = Outcome::granted;
  std::atomic<int> asked = 0;
};

class FakeStore final : public arbiter::Store {
 public:
  explicit FakeStore(Answers& answers) : answers_(answers) {}
  core::ArbiterAnswer perform(const core::ArbiterRequest& request) override {
    answers_.asked++;
    Outcome outcome = answers_.outcome;
    return {request.token, outcome, {}, outcome == Outcome::unknown ? "no answer" : ""};
  }
  void cancel() override {}

 private:
  Answers& answers_;
};

struct ArbiterWatchTest : testing::Test {
  Answers answers;
  ManualLoop loop;
  std::vector<core::Token> passed_on;
  std::unique_ptr<ArbiterWatch> watch = std::make_unique<ArbiterWatch>(
      loop, std::make_unique<FakeStore>(answers), "mail",
      [this](core::ArbiterAnswer a) { passed_on.push_back(a.token); });
};

TEST_F(ArbiterWatchTest, LooksFromTimeToTimeAndKeepsThatToItself) {
  loop.run_one();
  EXPECT_EQ(answers.asked, 1);
  EXPECT_EQ(watch->trouble(), "");
  answers.outcome = Outcome::unknown;
  loop.pass(std::chrono::seconds(30));
  loop.run_one();
  EXPECT_EQ(answers.asked, 2);
  EXPECT_NE(watch->trouble(), "");
  EXPECT_TRUE(passed_on.empty());
}

TEST_F(ArbiterWatchTest, PassesTheAnswersOfOthersOn) {
  watch->ask({7, true, std::nullopt, {}});
  loop.run_one();
  loop.run_one();
  EXPECT_EQ(passed_on, std::vector<core::Token>{7});
}

TEST_F(ArbiterWatchTest, ItsEndEndsTheLooking) {
  loop.run_one();
  watch.reset();
  loop.pass(std::chrono::minutes(5));
  EXPECT_EQ(answers.asked, 1);
}

}  // namespace
}  // namespace twinloft::repl::daemon
