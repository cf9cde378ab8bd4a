// Deliveries of the built-in agent if another service counts the use of the mailboxes.
#include "asked_quota.h"

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../support/maildir_fixture.h"

namespace twinloft::lmtpd {
namespace {

// A mailbox of `most` bytes. Stored bytes count as used.
struct Counting final : QuotaService {
  std::atomic<std::uint64_t> most{0}, used{0};
  std::atomic<bool> away{false};
  std::atomic<int> asked{0};
  std::atomic<std::uint64_t> last{0};
  Result<Room> room(const User&, std::uint64_t bytes) override {
    ++asked;
    last = bytes;
    if (away) return fail(Errc::unavailable, "quota-status is away");
    if (bytes > most) return Room::never;
    return used + bytes > most ? Room::full : Room::enough;
  }
};

class AskedQuotaTest : public test::MaildirFixture {
 protected:
  void SetUp() override {
    MaildirFixture::SetUp();
    quota_service_ = &service_;
    use();
  }
  void use(OverQuota over = OverQuota::reject, std::uint64_t lease = 0) {
    QuotaConfig quota;
    quota.lease = lease;
    quota.driver = QuotaDriver::count;
    quota.over = over;
    use_spool(dir_, DurabilityWay::fsync, {}, quota);
  }
  Counting service_;
};

TEST_F(AskedQuotaTest, IsAskedWithTheSizeThatDovecotCounts) {
  service_.most = 1'000'000;
  EXPECT_EQ(deliver().code, 250);
  std::string name = std::filesystem::directory_iterator(maildir_ + "/new")->path().filename();
  EXPECT_NE(name.find(",W=" + std::to_string(service_.last)), std::string::npos)
      << name << ", asked for " << service_.last;
  EXPECT_FALSE(std::filesystem::exists(maildir_ + "/maildirsize"));
}

TEST_F(AskedQuotaTest, FullIsRefusedAtRcptAndAtDelivery) {
  service_.most = 10'000;
  service_.used = 10'000;
  EXPECT_EQ(refusal(0)->code, 552);
  EXPECT_EQ(refusal(20'000)->enhanced, "5.2.3");
  EXPECT_FALSE(state_.counter);
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 552);
  EXPECT_EQ(reply.enhanced, "5.2.2");
  EXPECT_TRUE(std::filesystem::is_empty(maildir_ + "/new"));
  EXPECT_TRUE(std::filesystem::is_empty(maildir_ + "/tmp"));
  use(OverQuota::defer);
  EXPECT_EQ(refusal(0)->code, 452);
  EXPECT_EQ(deliver().code, 452);
}

TEST_F(AskedQuotaTest, WithoutAnAnswerMailIsPutOffAndTheLogSaysWhy) {
  service_.away = true;
  EXPECT_EQ(refusal(100)->code, 451);
  ASSERT_TRUE(state_.counter);
  EXPECT_EQ(state_.counter->message, "quota-status is away");
  EXPECT_EQ(deliver().code, 451);
  EXPECT_TRUE(std::filesystem::is_empty(maildir_ + "/new"));
  EXPECT_TRUE(std::filesystem::is_empty(maildir_ + "/tmp"));
}

// Deliveries in flight count, but cause no permanent refusal.
TEST_F(AskedQuotaTest, DeliveriesAtOnceDoNotShareTheLastRoom) {
  service_.most = recipient_.user.quota.bytes = 1000;
  OsClock clock;
  AskedQuota quota(&service_, lease_bytes_default, clock);
  {
    AskedQuota::Hold first, second, third;
    EXPECT_EQ(quota.take(recipient_.user, 600, first), Room::enough);
    auto beside = quota.take(recipient_.user, 600, second);
    ASSERT_FALSE(beside);
    EXPECT_EQ(beside.error().code, Errc::exhausted);
    EXPECT_EQ(quota.take(recipient_.user, 1100, third), Room::never);
    User other = recipient_.user;
    other.name = "other@example.org";
    AskedQuota::Hold theirs;
    EXPECT_EQ(quota.take(other, 600, theirs), Room::enough);
  }
  AskedQuota::Hold later, empty, also_empty;
  EXPECT_EQ(quota.take(recipient_.user, 600, later), Room::enough);
  EXPECT_EQ(quota.take(recipient_.user, 0, empty), Room::enough);
  EXPECT_EQ(quota.take(recipient_.user, 0, also_empty), Room::enough);
}

TEST_F(AskedQuotaTest, ManyAtOnceNeverHoldMoreThanThereIs) {
  service_.most = recipient_.user.quota.bytes = 1000;
  OsClock clock;
  AskedQuota quota(&service_, lease_bytes_default, clock);
  std::atomic<std::uint64_t> held{0}, highest{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        AskedQuota::Hold hold;
        auto room = quota.take(recipient_.user, 300, hold);
        if (!room || *room != Room::enough) continue;
        std::uint64_t now = held += 300, seen = highest;
        while (now > seen && !highest.compare_exchange_weak(seen, now)) {
        }
        held -= 300;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(highest, 0u);
  EXPECT_LE(highest, 1000u);
}

TEST_F(AskedQuotaTest, ALeaseAnswersForALookAndForDeliveries) {
  service_.most = 1'000'000'000;
  use(OverQuota::reject, lease_bytes_default);
  EXPECT_FALSE(agent_->look_now(recipient_.user, 1000));
  EXPECT_FALSE(refusal(1000));
  ASSERT_TRUE(agent_->look_now(recipient_.user, 1000));
  EXPECT_EQ(agent_->look_now(recipient_.user, 1000)->room, Room::enough);
  EXPECT_FALSE(agent_->look_now(recipient_.user, 2u << 20));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(deliver().code, 250);
  EXPECT_FALSE(refusal(0));
  EXPECT_EQ(service_.asked, 1);
}

TEST_F(AskedQuotaTest, ThreadsShareLeases) {
  service_.most = 1'000'000'000;
  OsClock clock;
  AskedQuota quota(&service_, lease_bytes_default, clock);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        AskedQuota::Hold hold;
        EXPECT_EQ(quota.take(recipient_.user, 300, hold), Room::enough);
        service_.used += 300;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(service_.asked, 4000 / 128);
  EXPECT_LE(service_.asked, 100);
}

// Fails once.
struct Throwing final : QuotaService {
  std::atomic<int> asked{0};
  Result<Room> room(const User&, std::uint64_t) override {
    if (asked++ == 0) throw std::runtime_error("no memory");
    return Room::enough;
  }
};

TEST_F(AskedQuotaTest, AnExceptionOfTheServiceKeepsNobodyWaiting) {
  Throwing service;
  OsClock clock;
  AskedQuota quota(&service, lease_bytes_default, clock);
  {
    AskedQuota::Hold hold;
    EXPECT_THROW((void)quota.take(recipient_.user, 300, hold), std::runtime_error);
  }
  AskedQuota::Hold hold;
  EXPECT_EQ(quota.take(recipient_.user, 300, hold), Room::enough);
}

}  // namespace
}  // namespace twinloft::lmtpd
