// Answers from memory, and answers from worker threads.
#include "questions.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "fake_filters.h"
#include "fakes.h"

namespace twinloft::lmtpd {
namespace {

// The mailboxes "full..." have no room. The look-up for "throws" fails.
class Watched final : public Mailboxes {
 public:
  bool has_limits(const User&) const override { return true; }
  MailboxState look(const User& user, const std::string& detail, std::uint64_t size) override {
    asked_on = std::this_thread::get_id();
    asked = detail + " " + std::to_string(size);
    if (user.name.starts_with("throws")) throw std::runtime_error("look");
    return {.room = user.name.starts_with("full") ? Room::full : Room::enough};
  }
  std::optional<MailboxState> look_now(const User& user, std::uint64_t size) override {
    return user.name == "known" && size == 42 ? std::optional<MailboxState>({.room = Room::never})
                                              : std::nullopt;
  }
  std::string asked;
  std::thread::id asked_on;
};

class QuestionsTest : public testing::Test {
 protected:
  QuestionsTest() {
    config_.rooms_max = 1;
    config_.mailboxes = &mailboxes_;
  }

  // The answer, and whether it was immediate.
  struct Outcome {
    LookupResult found;
    bool at_once;
  };
  Outcome ask(const std::string& local_part) {
    if (!hub_) hub_ = std::make_unique<Hub>(config_, users_, deliverer_, clock_);
    std::promise<Answer> later;
    auto now = Questions(*hub_).ask(LookupRequest{local_part, "lists", "example.org"}, [&] {
      return [&later](Answer answer) { later.set_value(std::move(answer)); };
    });
    bool at_once = now.has_value();
    Answer answer = at_once ? std::move(*now) : later.get_future().get();
    return {std::get<LookupResult>(std::move(answer)), at_once};
  }
  MailboxState look(const std::string& name) {
    if (!hub_) hub_ = std::make_unique<Hub>(config_, users_, deliverer_, clock_);
    User user;
    user.name = name;
    std::promise<Answer> later;
    auto now = Questions(*hub_).ask(MailboxQuestion{user, "lists", 42}, [&] {
      return [&later](Answer answer) { later.set_value(std::move(answer)); };
    });
    EXPECT_FALSE(now) << "a check may block";
    return std::get<MailboxState>(later.get_future().get());
  }

  OsClock clock_;
  FakeUsers users_;
  FakeDeliverer deliverer_;
  Watched mailboxes_;
  ServerConfig config_;
  std::unique_ptr<Hub> hub_;  // destroyed first, since its workers use the other members
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
  EXPECT_TRUE(known.found && *known.found);
  EXPECT_TRUE(ask("nobody").found && !*ask("nobody").found);
  EXPECT_EQ(ask("broken").found.error().code, Errc::unavailable);
  EXPECT_EQ(ask("throw").found.error().code, Errc::internal);
  EXPECT_EQ(mailboxes_.asked, "") << "this is a different question";
}

TEST_F(QuestionsTest, AWorkerLooksAtAMailbox) {
  EXPECT_EQ(look("full").room, Room::full);
  EXPECT_EQ(mailboxes_.asked, "lists 42");
  EXPECT_NE(mailboxes_.asked_on, std::this_thread::get_id());
  EXPECT_EQ(look("ann").room, Room::enough);
}

TEST_F(QuestionsTest, AMailboxThatIsKnownIsAnsweredAtOnce) {
  hub_ = std::make_unique<Hub>(config_, users_, deliverer_, clock_);
  User user;
  user.name = "known";
  auto now = Questions(*hub_).ask(MailboxQuestion{user, "lists", 42}, [] { return [](Answer) {}; });
  ASSERT_TRUE(now);
  EXPECT_EQ(std::get<MailboxState>(*now).room, Room::never);
  EXPECT_EQ(mailboxes_.asked, "");
}

// The delivery will report the full mailbox.
TEST_F(QuestionsTest, AMailboxThatCannotSayRefusesNothing) {
  MailboxState state = look("throws");
  EXPECT_EQ(state.room, Room::enough);
  EXPECT_FALSE(state.spool || state.counter);
}

// A look-up that hangs delays no question about a known user.
TEST_F(QuestionsTest, MailboxesHaveThreadsOfTheirOwn) {
  config_.lookups_max = 1;
  users_.at_hand = true;
  (void)ask("ann");
  std::promise<Answer> slow;
  auto now = Questions(*hub_).ask(LookupRequest{"waits", "", "example.org"}, [&] {
    return [&slow](Answer answer) { slow.set_value(std::move(answer)); };
  });
  EXPECT_FALSE(now);
  users_.gate.wait_for_waiting(1);
  EXPECT_TRUE(ask("full").found);
  EXPECT_EQ(look("full").room, Room::full);
  users_.gate.release();
  EXPECT_TRUE(std::get<LookupResult>(slow.get_future().get()));
}

// With one thread for filters.
class QuestionsToFilters : public QuestionsTest {
 protected:
  QuestionsToFilters() {
    config_.filters = &filters_;
    config_.filter_threads = 1;
    filters_.slow = filters_.held = {"DATA"};
    hub_ = std::make_unique<Hub>(config_, users_, deliverer_, clock_);
  }
  ~QuestionsToFilters() override {
    filters_.release();
    hub_.reset();  // its threads use the filters
  }
  static std::string code_of(const std::optional<Reply>& reply) {
    return reply ? fmt::format("{} {}", reply->code, reply->enhanced) : "passed";
  }
  // Asks about DATA. The future has the answer of another thread.
  std::future<std::string> ask_about_data(Questions& questions) {
    auto later = std::make_shared<std::promise<std::string>>();
    auto now = questions.ask(Question(FilterCommand(FilterData{})), [&] {
      return [later](Answer answer) { later->set_value(code_of(std::get<FilterVerdict>(answer).refusal)); };
    });
    EXPECT_FALSE(now);
    return later->get_future();
  }
  std::future<std::string> pass_message(Questions& questions) {
    auto later = std::make_shared<std::promise<std::string>>();
    questions.filter(std::make_shared<Envelope>(), nullptr, [later](const Questions::Filtered& filtered) {
      const auto* no = std::get_if<FilteredMessage::Refused>(&filtered.message.what);
      later->set_value(code_of(no ? std::optional(no->reply) : std::nullopt));
    });
    return later->get_future();
  }
  FakeFilters filters_;
};

TEST_F(QuestionsToFilters, WhatNeedsNoWaitIsAnsweredAtOnce) {
  filters_.verdicts["RCPT ann@d"] = {Reply{450, "4.7.1", "Not now"}};
  Questions questions(*hub_);
  auto answer = questions.ask(Question(FilterCommand(FilterRcpt{"ann@d", {}, false})),
                              [] { return [](Answer) {}; });
  ASSERT_TRUE(answer);
  EXPECT_EQ(code_of(std::get<FilterVerdict>(*answer).refusal), "450 4.7.1");
}

// All threads hear other messages. Nobody waits for their end.
TEST_F(QuestionsToFilters, BusyThreadsDeferAMessage) {
  Questions busy(*hub_), other(*hub_);
  auto first = ask_about_data(busy);
  filters_.wait_for("DATA");
  busy.give_up_waiting();
  auto command = ask_about_data(other);
  other.give_up_waiting();
  EXPECT_EQ(command.get(), "451 4.3.2");
  auto message = pass_message(other);
  other.give_up_waiting();
  other.give_up_waiting();
  EXPECT_EQ(message.get(), "451 4.3.2");
  auto later = pass_message(other);
  filters_.release();
  EXPECT_EQ(first.get(), "passed") << "it did not wait for a thread";
  EXPECT_EQ(later.get(), "passed");
}

TEST_F(QuestionsToFilters, AnExceptionDefersAMessage) {
  filters_.throwing = {"DATA", "message"};
  Questions questions(*hub_);
  EXPECT_EQ(ask_about_data(questions).get(), "451 4.3.0");
  EXPECT_EQ(pass_message(questions).get(), "451 4.3.0");
}

TEST_F(QuestionsToFilters, WhatIsGivenUpGetsNewFilters) {
  Questions questions(*hub_);
  auto held = ask_about_data(questions);
  filters_.wait_for("DATA");
  questions.leave_filters(true);
  EXPECT_EQ(held.get(), "passed") << "the answer of filters that were given up";
  auto next = pass_message(questions);
  EXPECT_EQ(next.get(), "passed");
  EXPECT_EQ(std::ranges::count(filters_.log(), "open"), 2);
}

}  // namespace
}  // namespace twinloft::lmtpd
