#include "twinloft/lmtpd/policy/quota_leases.h"

#include <gtest/gtest.h>

#include <string>

namespace twinloft::lmtpd {
namespace {

using For = QuotaLeases::For;
using Request = QuotaLeases::Request;
constexpr std::uint64_t kib = 1024, mib = kib * kib, gib = kib * mib;

struct QuotaLeasesTest : testing::Test {
  QuotaLeases leases;
  Instant now{std::chrono::hours(1) / std::chrono::nanoseconds(1)};

  static User user(std::uint64_t bytes = gib, std::uint64_t messages = 0,
                   std::string name = "ann@example.org") {
    User out;
    out.name = std::move(name);
    out.quota = {bytes, messages};
    return out;
  }
  static std::uint64_t asked(const QuotaLeases::Step& step) {
    auto* ask = std::get_if<QuotaLeases::Ask>(&step);
    return ask ? ask->bytes : 0;
  }
  static bool is_enough(const QuotaLeases::Step& step) {
    auto* done = std::get_if<QuotaLeases::Done>(&step);
    return done && done->room && *done->room == Room::enough;
  }
  static bool waits(const QuotaLeases::Step& step) { return std::holds_alternative<QuotaLeases::Wait>(step); }
  static Result<Room> result(const QuotaLeases::Step& step) {
    auto* done = std::get_if<QuotaLeases::Done>(&step);
    return done ? done->room : fail(Errc::internal, "not done");
  }
  // A delivery that is stored at once. The service answers `room` to everything. Returns the first question,
  // or 0.
  std::uint64_t deliver(const User& to, std::uint64_t bytes, Room room = Room::enough) {
    Request request(to, bytes, For::delivery);
    QuotaLeases::Step step = leases.begin(request, now);
    const std::uint64_t first = asked(step);
    while (asked(step)) step = leases.answered(request, room, now);
    leases.end(request, now);
    return first;
  }
};

TEST_F(QuotaLeasesTest, ALeaseIsA64thOfTheLimitAndAtMost16MiB) {
  EXPECT_EQ(deliver(user(64 * mib), 4 * kib), mib);
  EXPECT_EQ(deliver(user(1000 * gib, 0, "large"), 4 * kib), 16 * mib);
  EXPECT_EQ(deliver(user(0, 0, "unknown"), 4 * kib), mib);
  QuotaLeases none({.bytes_max = 0});
  Request request(user(), 4 * kib, For::delivery);
  EXPECT_EQ(asked(none.begin(request, now)), 4 * kib);
}

TEST_F(QuotaLeasesTest, DeliveriesUseALeaseUpBeforeTheNextQuestion) {
  int questions = 0;
  for (int i = 0; i < 200; ++i) questions += deliver(user(64 * mib), 100 * kib) != 0;
  EXPECT_EQ(questions, 20);
}

TEST_F(QuotaLeasesTest, ALeaseIsForSoManyMessages) {
  int questions = 0;
  for (int i = 0; i < 1280; ++i) questions += deliver(user(), 1) != 0;
  EXPECT_EQ(questions, 10);
}

TEST_F(QuotaLeasesTest, ALeaseEndsTenSecondsAfterItsQuestion) {
  Request first(user(), 1, For::delivery);
  EXPECT_NE(asked(leases.begin(first, now)), 0u);
  now = now + std::chrono::seconds(4);  // the service answers late
  EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
  leases.end(first, now);
  now = now + std::chrono::milliseconds(5'999);
  EXPECT_EQ(deliver(user(), 1), 0u);
  now = now + std::chrono::milliseconds(1);
  EXPECT_NE(deliver(user(), 1), 0u);
}

TEST_F(QuotaLeasesTest, AnAnswerAfterTheEndOfTheLeaseIsForItsMessageOnly) {
  Request first(user(), 1, For::delivery);
  EXPECT_NE(asked(leases.begin(first, now)), 0u);
  now = now + std::chrono::seconds(11);
  EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
  leases.end(first, now);
  EXPECT_EQ(leases.remembered(), 0u);
  EXPECT_NE(deliver(user(), 1), 0u);
}

TEST_F(QuotaLeasesTest, ALookUsesALeaseAndTakesNothingFromIt) {
  for (int i = 0; i < 300; ++i) {
    Request look(user(64 * mib), mib, For::look);
    QuotaLeases::Step step = leases.begin(look, now);
    EXPECT_EQ(asked(step), i == 0 ? mib : 0);
    if (i == 0) step = leases.answered(look, Room::enough, now);
    EXPECT_TRUE(is_enough(step));
    leases.end(look, now);
  }
  EXPECT_EQ(deliver(user(64 * mib), mib), 0u);
}

TEST_F(QuotaLeasesTest, ARefusedLeaseIsFollowedByAQuestionForTheMessage) {
  Request request(user(), 4 * kib, For::delivery);
  EXPECT_EQ(asked(leases.begin(request, now)), 16 * mib);
  EXPECT_EQ(asked(leases.answered(request, Room::full, now)), 4 * kib);
  EXPECT_TRUE(is_enough(leases.answered(request, Room::enough, now)));
  leases.end(request, now);
  Request full(user(), 4 * kib, For::delivery);
  EXPECT_EQ(asked(leases.begin(full, now)), 4 * mib);
  EXPECT_EQ(asked(leases.answered(full, Room::full, now)), 4 * kib);
  EXPECT_EQ(result(leases.answered(full, Room::never, now)), Room::never);
  leases.end(full, now);
}

TEST_F(QuotaLeasesTest, RefusedLeasesShrinkAndGrowAgain) {
  EXPECT_EQ(deliver(user(), 4 * kib, Room::full), 16 * mib);
  EXPECT_EQ(deliver(user(), 4 * kib, Room::full), 4 * mib);
  EXPECT_EQ(deliver(user(), 4 * kib, Room::full), mib);
  EXPECT_EQ(deliver(user(), 4 * kib, Room::full), 256 * kib);
  EXPECT_EQ(deliver(user(), 4 * kib, Room::full), 4 * kib);  // itself
  EXPECT_EQ(deliver(user(), 4 * kib, Room::full), 4 * kib);
  now = now + std::chrono::seconds(60);
  EXPECT_EQ(deliver(user(), 4 * kib), 256 * kib);
  EXPECT_EQ(leases.remembered(), 1u);
  now = now + std::chrono::hours(1);
  EXPECT_EQ(deliver(user(), 4 * kib), 16 * mib);
}

TEST_F(QuotaLeasesTest, UsersWithALimitOfMessagesAreAskedForEach) {
  for (int i = 0; i < 10; ++i) {
    Request look(user(gib, 1000), 4 * kib, For::look);
    EXPECT_EQ(asked(leases.begin(look, now)), 4 * kib);
    EXPECT_TRUE(is_enough(leases.answered(look, Room::enough, now)));
    leases.end(look, now);
    EXPECT_EQ(deliver(user(gib, 1000), 4 * kib), 4 * kib);
  }
  EXPECT_EQ(leases.remembered(), 0u);
}

// A row may change while a lease lives.
TEST_F(QuotaLeasesTest, ALeaseCoversNobodyWhoHasGotALimitOfMessages) {
  EXPECT_EQ(deliver(user(), 4 * kib), 16 * mib);
  EXPECT_EQ(deliver(user(gib, 1000), 4 * kib), 4 * kib);
}

TEST_F(QuotaLeasesTest, OneAsksAndTheOthersWait) {
  Request first(user(), kib, For::delivery), second(user(), kib, For::delivery), look(user(), kib, For::look);
  Request other(user(gib, 0, "bob"), kib, For::delivery);
  EXPECT_NE(asked(leases.begin(first, now)), 0u);
  EXPECT_TRUE(waits(leases.begin(second, now)));
  EXPECT_TRUE(waits(leases.begin(look, now)));
  EXPECT_NE(asked(leases.begin(other, now)), 0u);
  EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
  EXPECT_TRUE(is_enough(leases.begin(second, now)));
  EXPECT_TRUE(is_enough(leases.begin(look, now)));
  for (Request* one : {&first, &second, &look, &other}) leases.end(*one, now);
}

// A look would be overtaken by deliveries again and again.
TEST_F(QuotaLeasesTest, ALookWaitsOnce) {
  Request first(user(), kib, For::delivery), second(user(), kib, For::delivery), look(user(), kib, For::look);
  EXPECT_NE(asked(leases.begin(first, now)), 0u);
  EXPECT_TRUE(waits(leases.begin(look, now)));
  EXPECT_FALSE(result(leases.answered(first, fail(Errc::timeout, "late"), now)));
  EXPECT_NE(asked(leases.begin(second, now)), 0u);
  EXPECT_EQ(asked(leases.begin(look, now)), kib);
  EXPECT_EQ(result(leases.answered(look, Room::full, now)), Room::full);
  EXPECT_TRUE(is_enough(leases.answered(second, Room::enough, now)));
  for (Request* one : {&first, &second, &look}) leases.end(*one, now);
}

TEST_F(QuotaLeasesTest, WhoeverEndsWithoutAnAnswerLetsOthersAsk) {
  Request first(user(), kib, For::delivery), second(user(), kib, For::delivery);
  EXPECT_NE(asked(leases.begin(first, now)), 0u);
  EXPECT_TRUE(waits(leases.begin(second, now)));
  leases.end(first, now);
  EXPECT_NE(asked(leases.begin(second, now)), 0u);
  leases.end(second, now);
}

// The sum may be beyond Dovecot's largest size of a message, which each of them is below.
TEST_F(QuotaLeasesTest, ASumThatIsTooLargeForOneMessageRefusesNobody) {
  Request first(user(), 20 * mib, For::delivery), second(user(), 20 * mib, For::delivery);
  EXPECT_EQ(asked(leases.begin(first, now)), 20 * mib);
  EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
  EXPECT_EQ(asked(leases.begin(second, now)), 40 * mib);
  EXPECT_EQ(asked(leases.answered(second, Room::never, now)), 20 * mib);
  EXPECT_TRUE(is_enough(leases.answered(second, Room::enough, now)));
  leases.end(first, now);
  leases.end(second, now);
}

TEST_F(QuotaLeasesTest, ASumBeyondTheKnownLimitIsHeldByOthers) {
  const User small = user(30 * mib);
  Request first(small, 20 * mib, For::delivery), second(small, 20 * mib, For::delivery);
  EXPECT_EQ(asked(leases.begin(first, now)), 20 * mib);
  EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
  EXPECT_EQ(asked(leases.begin(second, now)), 40 * mib);
  EXPECT_EQ(asked(leases.answered(second, Room::never, now)), 20 * mib);
  auto held = result(leases.answered(second, Room::enough, now));
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, Errc::exhausted);
  leases.end(first, now);
  leases.end(second, now);
}

TEST_F(QuotaLeasesTest, QuestionsIncludeWhatIsInFlight) {
  Request first(user(), 3 * mib, For::delivery), large(user(), 20 * mib, For::delivery);
  EXPECT_EQ(asked(leases.begin(first, now)), 16 * mib);
  EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
  EXPECT_EQ(asked(leases.begin(large, now)), 23 * mib);
  EXPECT_EQ(asked(leases.answered(large, Room::full, now)), 20 * mib);
  auto held = result(leases.answered(large, Room::enough, now));
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, Errc::exhausted);
  EXPECT_EQ(held.error().message, "no room is left: deliveries in flight hold 3145728 bytes");
  leases.end(large, now);
  Request alone(user(), 20 * mib, For::delivery);
  EXPECT_EQ(asked(leases.begin(alone, now)), 23 * mib);
  EXPECT_EQ(asked(leases.answered(alone, Room::full, now)), 20 * mib);
  EXPECT_EQ(result(leases.answered(alone, Room::full, now)), Room::full);
  leases.end(alone, now);
  EXPECT_EQ(deliver(user(), kib), 19 * mib);  // the question for the message has ended the lease
  leases.end(first, now);
}

TEST_F(QuotaLeasesTest, ALeaseIsRenewedBeforeItsEndWhileOthersUseIt) {
  Request first(user(64 * mib), 700 * kib, For::delivery), second(user(64 * mib), 100 * kib, For::delivery),
      third(user(64 * mib), 200 * kib, For::delivery);
  EXPECT_EQ(asked(leases.begin(first, now)), mib);
  EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
  // 224 KiB are left, and all that is drawn is in flight.
  EXPECT_EQ(asked(leases.begin(second, now)), 1824 * kib);
  EXPECT_TRUE(is_enough(leases.begin(third, now)));
  EXPECT_TRUE(is_enough(leases.answered(second, Room::enough, now)));
  for (Request* one : {&first, &second, &third}) leases.end(*one, now);
  // What was drawn during the question came off the new lease.
  EXPECT_EQ(deliver(user(64 * mib), 824 * kib), 0u);
  EXPECT_EQ(deliver(user(64 * mib), 1), mib);
}

TEST_F(QuotaLeasesTest, AFailedRenewalRefusesNobody) {
  for (Result<Room> answer : {Result<Room>(Room::full), Result<Room>(fail(Errc::timeout, "late"))}) {
    const User to = user(64 * mib, 0, answer ? "full" : "late");
    Request first(to, 900 * kib, For::delivery), second(to, 10 * kib, For::delivery);
    EXPECT_EQ(asked(leases.begin(first, now)), mib);
    EXPECT_TRUE(is_enough(leases.answered(first, Room::enough, now)));
    EXPECT_NE(asked(leases.begin(second, now)), 0u);
    EXPECT_TRUE(is_enough(leases.answered(second, answer, now)));
    Request third(to, 10 * kib, For::delivery);
    EXPECT_TRUE(is_enough(leases.begin(third, now)));  // the old lease, without another question at once
    for (Request* one : {&first, &second, &third}) leases.end(*one, now);
  }
}

TEST_F(QuotaLeasesTest, NobodyRenewsForHimselfAlone) {
  EXPECT_EQ(deliver(user(64 * mib), 700 * kib), mib);
  EXPECT_EQ(deliver(user(64 * mib), 300 * kib), 0u);
}

TEST_F(QuotaLeasesTest, WithoutAnAnswerTheErrorIsPassedOn) {
  Request request(user(), kib, For::delivery);
  EXPECT_NE(asked(leases.begin(request, now)), 0u);
  auto failed = result(leases.answered(request, fail(Errc::unavailable, "away"), now));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "away");
  leases.end(request, now);
  EXPECT_EQ(leases.remembered(), 0u);
}

TEST_F(QuotaLeasesTest, RemembersSoManyUsers) {
  QuotaLeases few({.idle_max = 3});
  auto question = [&](const std::string& name) {
    Request request(user(gib, 0, name), kib, For::delivery);
    QuotaLeases::Step step = few.begin(request, now);
    const std::uint64_t first = asked(step);
    if (first) step = few.answered(request, Room::enough, now);
    few.end(request, now);
    return first != 0;
  };
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(question(name));
  EXPECT_FALSE(question("a"));
  EXPECT_TRUE(question("d"));  // in place of b
  EXPECT_EQ(few.remembered(), 3u);
  EXPECT_FALSE(question("a"));
  EXPECT_FALSE(question("c"));
  EXPECT_TRUE(question("b"));
}

}  // namespace
}  // namespace twinloft::lmtpd
