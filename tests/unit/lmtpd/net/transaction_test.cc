// Deliveries that wait, begin, end and are abandoned, with a deliverer that the test controls, and no clock.
#include "transaction.h"

#include <gtest/gtest.h>

#include <future>

#include "fakes.h"

namespace twinloft::lmtpd {
namespace {

const Reply stopping{451, "4.3.2", "stopping"};
constexpr auto cut_short = Transaction::Begun::cut_short, goes_on = Transaction::Begun::goes_on;

class TransactionTest : public testing::Test {
 protected:
  ~TransactionTest() override { deliverer_.release(); }

  void use_workers(std::uint32_t count) { config_.deliveries_max = count; }
  Hub& hub() {
    if (!hub_) hub_ = std::make_unique<Hub>(config_, users_, deliverer_, clock_);
    return *hub_;
  }
  std::shared_ptr<Transaction> make(std::initializer_list<const char*> recipients, DeliveriesDone done = {}) {
    auto envelope = std::make_shared<Envelope>();
    for (const char* name : recipients) {
      Recipient r;
      r.text = r.local_part = r.user.name = name;
      r.user.is_old = r.text.ends_with("-old");
      envelope->recipients.push_back(std::move(r));
    }
    auto body = std::make_shared<BodyStore>(hub().body_limits, hub().budget);
    EXPECT_TRUE(body->append("text"));
    if (!done) done = [this](std::vector<Reply> replies) { done_.set_value(std::move(replies)); };
    return std::make_shared<Transaction>(hub(), envelope, std::move(body), std::move(done));
  }
  std::vector<std::string> codes() {
    std::vector<std::string> out;
    for (const Reply& r : done_.get_future().get()) out.push_back(std::to_string(r.code) + " " + r.enhanced);
    return out;
  }
  std::vector<std::string> begun() {
    std::vector<std::string> out;
    for (const Delivered& d : deliverer_.delivered()) out.push_back(d.to);
    return out;
  }

  OsClock clock_;
  FakeUsers users_;
  FakeDeliverer deliverer_;
  ServerConfig config_;
  std::promise<std::vector<Reply>> done_;
  std::unique_ptr<Hub> hub_;  // destroyed first, since its workers use the other members
};

using Texts = std::vector<std::string>;

TEST_F(TransactionTest, WhatHasBegunIsWaitedForAndTheRestIsNotBegun) {
  use_workers(1);
  deliverer_.hold();
  auto t = make({"a", "b", "c"});
  t->start();
  deliverer_.wait_for_waiting(1);
  EXPECT_EQ(hub().deliveries_begun, 1u);
  t->give_up_waiting(stopping, "test", cut_short);
  t->give_up_waiting({451, "4.3.0", "too late"}, "test", cut_short);
  deliverer_.release();
  EXPECT_EQ(codes(), (Texts{"250 2.0.0", "451 4.3.2", "451 4.3.2"}));
  EXPECT_EQ(begun(), (Texts{"a"}));
  hub_.reset();
}

TEST_F(TransactionTest, GivenUpAmongTheRecipientsOfOneUser) {
  use_workers(3);
  deliverer_.hold();
  auto t = make({"a", "b", "a", "b"});
  t->start();
  deliverer_.wait_for_waiting(2);
  t->give_up_waiting(stopping, "test", cut_short);
  deliverer_.release();
  EXPECT_EQ(codes(), (Texts{"250 2.0.0", "250 2.0.0", "451 4.3.2", "451 4.3.2"}));
  hub_.reset();
  EXPECT_EQ(begun().size(), 2u);
}

// The volume is suspended and every worker is blocked. The client gets its replies nevertheless.
TEST_F(TransactionTest, IsAnsweredWithoutAnyWorker) {
  use_workers(0);
  auto t = make({"a", "b"});
  t->start();
  EXPECT_GT(hub().budget.used(), 0u);
  t->give_up_waiting(stopping, "test", cut_short);
  EXPECT_EQ(codes(), (Texts{"451 4.3.2", "451 4.3.2"}));
  EXPECT_EQ(hub().budget.used(), 0u) << "the message is released";
  EXPECT_EQ(t.use_count(), 1) << "its task is released too";
}

TEST_F(TransactionTest, GivenUpBeforeItsStart) {
  use_workers(1);
  auto t = make({"a"});
  t->give_up_waiting(stopping, "test", cut_short);
  t->start();
  EXPECT_EQ(codes(), (Texts{"451 4.3.2"}));
  hub_.reset();
  EXPECT_EQ(begun(), Texts{});
}

TEST_F(TransactionTest, GivingUpWhatIsDoneChangesNothing) {
  use_workers(2);
  auto t = make({"a", "full", "throws"});
  t->start();
  EXPECT_EQ(codes(), (Texts{"250 2.0.0", "452 4.2.2", "451 4.3.0"}));
  t->give_up_waiting(stopping, "test", cut_short);
  hub_.reset();
  EXPECT_EQ(begun().size(), 2u);
}

// An agent with a limit of two gets no third delivery of the same message, and the other deliveries do not
// wait for it.
TEST_F(TransactionTest, NoMoreThanASharedLimitAllows) {
  use_workers(8);
  deliverer_.limits_by_letter = {{'x', 2}, {'y', 1}};
  deliverer_.hold();
  auto t = make({"x1", "x2", "x3", "y1", "x4", "y2", "z1", "z2"});
  t->start();
  deliverer_.wait_for_waiting(5);
  EXPECT_EQ(hub().deliveries_begun, 5u) << "two x, one y, two z";
  deliverer_.release();
  EXPECT_EQ(codes(), Texts(8, "250 2.0.0"));
  EXPECT_EQ(begun().size(), 8u);
  EXPECT_LE(deliverer_.most_at_once(), 5);
}

TEST_F(TransactionTest, ASharedLimitAndOneWorker) {
  use_workers(1);
  deliverer_.limits_by_letter = {{'x', 1}};
  auto t = make({"x1", "x2", "a", "x1", "x3"});
  t->start();
  EXPECT_EQ(codes(), Texts(5, "250 2.0.0"));
  EXPECT_EQ(begun(), (Texts{"x1", "x1", "x2", "a", "x3"}));
}

TEST_F(TransactionTest, GivenUpUnderASharedLimit) {
  use_workers(4);
  deliverer_.limits_by_letter = {{'x', 1}};
  deliverer_.hold();
  auto t = make({"x1", "x2", "x3"});
  t->start();
  deliverer_.wait_for_waiting(1);
  t->give_up_waiting(stopping, "test", cut_short);
  deliverer_.release();
  EXPECT_EQ(codes(), (Texts{"250 2.0.0", "451 4.3.2", "451 4.3.2"}));
}

// Messages beyond a user's limit wait without a thread. A delivery to another user takes the thread.
TEST_F(TransactionTest, BeyondAUsersLimitTheNextMessageWaits) {
  use_workers(2);
  deliverer_.per_user_max = 1;
  deliverer_.hold();
  std::promise<std::vector<Reply>> first_done;
  auto first = make({"ann"}, [&](std::vector<Reply> replies) { first_done.set_value(std::move(replies)); });
  first->start();
  deliverer_.wait_for_waiting(1);
  auto second = make({"ann", "bob"});
  second->start();
  deliverer_.wait_for_waiting(2);
  EXPECT_EQ(hub().deliveries_begun, 2u) << "ann's first delivery, and bob's";
  deliverer_.release();
  EXPECT_EQ(codes(), Texts(2, "250 2.0.0"));
  EXPECT_EQ(first_done.get_future().get().at(0).code, 250);
  EXPECT_EQ(deliverer_.most_at_once_to_one_user(), 1);
}

// The running deliveries keep the message. Their own replies come too late.
TEST_F(TransactionTest, AbortWaitsForNothing) {
  use_workers(2);
  deliverer_.hold();
  auto t = make({"a", "b", "c"});
  t->start();
  deliverer_.wait_for_waiting(2);
  t->give_up_waiting({451, "4.3.0", "first"}, "test", cut_short);
  t->abort(stopping, "test");
  t->abort(stopping, "test");
  EXPECT_EQ(codes(), (Texts{"451 4.3.2", "451 4.3.2", "451 4.3.0"}));
  EXPECT_EQ(hub().deliveries_begun, 2u);
  EXPECT_GT(hub().budget.used(), 0u);
  deliverer_.release();
  hub().deliveries.finish();
  EXPECT_EQ(hub().deliveries_begun, 0u);
  EXPECT_EQ(hub().budget.used(), 0u);
  for (const Delivered& d : deliverer_.delivered()) EXPECT_EQ(d.text, "text");
}

// queue_time does not stop a group that has begun, but the end of its client does.
TEST_F(TransactionTest, AGroupThatHasBegunIsCutShortWhereNobodyWaits) {
  use_workers(1);
  std::vector<Transaction*> one;
  deliverer_.before_part = [&](int part) {
    if (part == 1) one.front()->give_up_waiting({451, "4.3.2", "queue_time"}, "test", goes_on);
    if (part == 3) one.front()->give_up_waiting(stopping, "test", cut_short);
  };
  auto t = make({"group-a", "group-b", "c", "group-d", "group-e"});
  one.push_back(t.get());
  t->start();
  EXPECT_EQ(codes(), (Texts{"250 2.0.0", "250 2.0.0", "451 4.3.2", "250 2.0.0", "451 4.3.2"}));
  hub_.reset();
  EXPECT_EQ(begun(), (Texts{"group-a", "group-b", "group-d"}));
}

// An agent or a next hop refuses. The cached row that led there may be out of date.
TEST_F(TransactionTest, NobodyIsRefusedForGoodByARowFromMemory) {
  use_workers(2);
  auto t = make({"refused", "refused-old", "full-old", "a-old"});
  t->start();
  EXPECT_EQ(codes(), (Texts{"550 5.1.1", "451 4.3.0", "452 4.2.2", "250 2.0.0"}));
  hub_.reset();
}

TEST_F(TransactionTest, AbortOfWhatIsDoneChangesNothing) {
  use_workers(1);
  auto t = make({"a"});
  t->start();
  EXPECT_EQ(codes(), (Texts{"250 2.0.0"}));
  t->abort(stopping, "test");
  hub_.reset();
}

// Users whose names begin with "m" go on as users whose names begin with "s", or as a group.
std::shared_ptr<const Recipient> moved_to_s(const Recipient& recipient) {
  if (!recipient.user.name.starts_with("m")) return nullptr;
  auto out = std::make_shared<Recipient>(recipient);
  out->user.name = (recipient.user.name.starts_with("mg") ? "group-" : "s-") + recipient.user.name;
  return out;
}

TEST_F(TransactionTest, WhatGoesOnElsewhereIsAnsweredInTheOrderOfItsRecipients) {
  use_workers(3);
  deliverer_.move = moved_to_s;
  auto t = make({"a", "m1", "full", "m2", "m1", "b", "mg", "mg"});
  t->start();
  std::vector<std::string> texts;
  for (const Reply& r : done_.get_future().get()) texts.push_back(r.text);
  EXPECT_EQ(texts, (Texts{"a delivered", "m1 delivered", "Mailbox full", "m2 delivered", "m1 delivered",
                          "b delivered", "mg delivered", "mg delivered"}));
  hub_.reset();
  EXPECT_EQ(begun().size(), 8u);
}

TEST_F(TransactionTest, WhatGoesOnElsewhereWaitsForTheLimitsThere) {
  use_workers(8);
  deliverer_.move = moved_to_s;
  deliverer_.limits_by_letter = {{'s', 1}};
  deliverer_.hold();
  auto t = make({"m1", "m2", "m3", "a"});
  t->start();
  deliverer_.wait_for_waiting(2);
  deliverer_.release();
  EXPECT_EQ(codes(), Texts(4, "250 2.0.0"));
  EXPECT_EQ(deliverer_.most_at_once(), 2) << "one of s, and a";
  hub_.reset();
}

TEST_F(TransactionTest, GivenUpWhileItWaitsElsewhere) {
  use_workers(1);
  Gate all_posted;  // so that "a" is before those that have moved
  deliverer_.move = [&](const Recipient& recipient) {
    all_posted.pass();
    return moved_to_s(recipient);
  };
  auto t = make({"m1", "m2", "a"});
  deliverer_.last_step = [one = t.get()] { one->give_up_waiting(stopping, "test", goes_on); };
  t->start();
  all_posted.release();
  EXPECT_EQ(codes(), (Texts{"451 4.3.2", "451 4.3.2", "250 2.0.0"}));
  hub_.reset();
  EXPECT_EQ(begun(), (Texts{"a"}));
}

// The delivery had begun here when its transaction was given up, and has done nothing yet.
TEST_F(TransactionTest, GivenUpBeforeItGoesOnElsewhere) {
  use_workers(1);
  std::vector<Transaction*> one;
  deliverer_.move = [&](const Recipient& recipient) {
    one.front()->give_up_waiting(stopping, "test", goes_on);
    return moved_to_s(recipient);
  };
  auto t = make({"m1", "a"});
  one.push_back(t.get());
  t->start();
  EXPECT_EQ(codes(), (Texts{"451 4.3.2", "451 4.3.2"}));
  hub_.reset();
  EXPECT_EQ(begun(), Texts{});
}

// Given up after the delivery has ended here, and before it waits elsewhere: it must not wait there at all.
TEST_F(TransactionTest, GivenUpOnItsWayElsewhere) {
  use_workers(2);
  Gate busy;
  deliverer_.limits_by_letter = {{'s', 1}};
  deliverer_.move = [&](const Recipient& recipient) {
    if (recipient.user.name == "s0") busy.pass();
    return moved_to_s(recipient);
  };
  std::promise<void> first_done, last_done;
  auto first = make({"s0"}, [&](std::vector<Reply>) { first_done.set_value(); });
  auto t = make({"m1"});
  deliverer_.on_limits = [one = t.get()](const User& user) {
    if (user.name == "s-m1") one->give_up_waiting(stopping, "test", goes_on);
  };
  first->start();
  t->start();
  EXPECT_EQ(codes(), (Texts{"451 4.3.2"}));
  // On the only free thread, so behind the whole of the delivery before.
  auto last = make({"b"}, [&](std::vector<Reply>) { last_done.set_value(); });
  last->start();
  last_done.get_future().get();
  EXPECT_EQ(hub().deliveries.drop(t.get()), "") << "nothing of it waits";
  busy.release();
  first_done.get_future().get();
  hub_.reset();
}

// group_of() throws for the user there.
TEST_F(TransactionTest, WhatCannotGoOnElsewhereIsDeferred) {
  use_workers(1);
  deliverer_.move = [&](const Recipient& recipient) {
    deliverer_.group_throws = recipient.user.name == "m1";
    return moved_to_s(recipient);
  };
  auto t = make({"m1", "a", "m2"});
  t->start();
  EXPECT_EQ(codes(), (Texts{"451 4.3.0", "250 2.0.0", "250 2.0.0"}));
  hub_.reset();
  EXPECT_EQ(begun(), (Texts{"a", "m2"}));
}

TEST_F(TransactionTest, AnAbortEndsWhatGoesOnElsewhere) {
  use_workers(1);
  std::vector<Transaction*> one;
  deliverer_.move = [&](const Recipient& recipient) {
    one.front()->abort(stopping, "test");
    return moved_to_s(recipient);
  };
  auto t = make({"m1"});
  one.push_back(t.get());
  t->start();
  EXPECT_EQ(codes(), (Texts{"451 4.3.2"}));
  hub_.reset();
  EXPECT_EQ(begun(), Texts{});
}

}  // namespace
}  // namespace twinloft::lmtpd
