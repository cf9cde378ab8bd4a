// Answers from memory, and answers that worker threads find out.
#include "questions.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "fakes.h"

namespace twinloft::lmtpd {
namespace {

// A mailbox of "full..." refuses, "throws-at-refusal" does not know.
class Refuser final : public Deliverer {
 public:
  bool may_refuse(const User&) const override { return refuses; }
  std::optional<Reply> refusal(const User& user, const std::string& detail, std::uint64_t size) override {
    asked_on = std::this_thread::get_id();
    asked = detail + " " + std::to_string(size);
    if (user.name.starts_with("throws")) throw std::runtime_error("refusal");
    if (user.name.starts_with("full")) return Reply{552, "5.2.2", "full"};
    return std::nullopt;
  }
  DeliveryOutcome deliver(const Envelope&, const Recipient&, const MessageBody&) override {
    return {{451, "4.3.0", "nothing is delivered here"}};
  }
  bool refuses = false;
  std::string asked;
  std::thread::id asked_on;
};

class QuestionsTest : public testing::Test {
 protected:
  QuestionsTest() { config_.rooms_max = 1; }

  // The answer, and whether it came at once.
  struct Outcome {
    LookupResult found;
    bool at_once;
  };
  Outcome ask(const std::string& local_part) {
    if (!hub_) hub_ = std::make_unique<Hub>(config_, users_, deliverer_, clock_);
    std::promise<Answer> later;
    auto now = Questions(*hub_).ask(LookupRequest{local_part, "lists", "example.org", 42}, [&] {
      return [&later](Answer answer) { later.set_value(std::move(answer)); };
    });
    bool at_once = now.has_value();
    Answer answer = at_once ? std::move(*now) : later.get_future().get();
    return {std::get<LookupResult>(std::move(answer)), at_once};
  }

  OsClock clock_;
  FakeUsers users_;
  Refuser deliverer_;
  ServerConfig config_;
  std::unique_ptr<Hub> hub_;  // first to go: its workers use the rest
};

TEST_F(QuestionsTest, WhatIsAtHandIsAnsweredAtOnce) {
  users_.at_hand = true;
  Outcome known = ask("ann");
  EXPECT_TRUE(known.at_once);
  ASSERT_TRUE(known.found && *known.found);
  EXPECT_EQ((*known.found)->user.name, "ann@example.org");
  Outcome nobody = ask("nobody");
  EXPECT_TRUE(nobody.at_once && nobody.found && !*nobody.found);
  Outcome broken = ask("broken");
  EXPECT_TRUE(broken.at_once);
  EXPECT_EQ(broken.found.error().code, Errc::unavailable);
  Outcome thrown = ask("throw");
  EXPECT_TRUE(thrown.at_once);
  EXPECT_EQ(thrown.found.error().code, Errc::internal);
}

TEST_F(QuestionsTest, AWorkerFindsOutTheRest) {
  Outcome known = ask("ann");
  EXPECT_FALSE(known.at_once);
  EXPECT_TRUE(known.found && *known.found && !(*known.found)->refusal);
  EXPECT_TRUE(ask("nobody").found && !*ask("nobody").found);
  EXPECT_EQ(ask("broken").found.error().code, Errc::unavailable);
  EXPECT_EQ(ask("throw").found.error().code, Errc::internal);
  EXPECT_EQ(deliverer_.asked, "") << "nobody's mail may be refused";
}

TEST_F(QuestionsTest, TheMailboxIsAskedByAWorkerInBothCases) {
  deliverer_.refuses = true;
  for (bool at_hand : {true, false}) {
    users_.at_hand = at_hand;
    Outcome full = ask("full");
    EXPECT_FALSE(full.at_once);
    ASSERT_TRUE(full.found && *full.found && (*full.found)->refusal) << at_hand;
    EXPECT_EQ((*full.found)->refusal->enhanced, "5.2.2");
    EXPECT_EQ(deliverer_.asked, "lists 42");
    EXPECT_NE(deliverer_.asked_on, std::this_thread::get_id());
    EXPECT_FALSE((*ask("ann").found)->refusal);
    EXPECT_TRUE(ask("nobody").found && !*ask("nobody").found);
  }
}

// The delivery will tell.
TEST_F(QuestionsTest, AMailboxThatCannotSayRefusesNothing) {
  deliverer_.refuses = true;
  Outcome outcome = ask("throws-at-refusal");
  ASSERT_TRUE(outcome.found && *outcome.found);
  EXPECT_FALSE((*outcome.found)->refusal);
}

// A look-up that hangs holds up no question whose user is known.
TEST_F(QuestionsTest, RefusalsHaveThreadsOfTheirOwn) {
  deliverer_.refuses = true;
  config_.lookups_max = 1;
  users_.at_hand = true;
  (void)ask("ann");
  std::promise<Answer> slow;
  auto now = Questions(*hub_).ask(LookupRequest{"waits", "", "example.org", 0}, [&] {
    return [&slow](Answer answer) { slow.set_value(std::move(answer)); };
  });
  EXPECT_FALSE(now);
  users_.gate.wait_for_waiting(1);
  EXPECT_TRUE(ask("full").found);
  users_.gate.release();
  EXPECT_TRUE(std::get<LookupResult>(slow.get_future().get()));
}

}  // namespace
}  // namespace twinloft::lmtpd
