#include "expiry_watch.h"

#include <gtest/gtest.h>

namespace twinloft::repl::daemon {
namespace {

constexpr std::int64_t day = 86'400, ends = 1'800'000'000;

struct ExpiryWatchTest : testing::Test {
  std::vector<std::pair<ReplicaId, std::string>> told;
  ExpiryWatch watch{[this](ReplicaId peer, const std::string& text) { told.emplace_back(peer, text); }};
};

TEST_F(ExpiryWatchTest, WarnsOnceAtEachStep) {
  std::vector<std::int64_t> days;
  for (std::int64_t hours = 40 * 24; hours >= -72; --hours) {
    std::size_t before = told.size();
    watch.look(0, ends, ends - hours * 3600);
    if (told.size() > before) days.push_back(hours / 24);
  }
  EXPECT_EQ(days, (std::vector<std::int64_t>{30, 14, 7, 3, 1, 0}));
  EXPECT_EQ(
      told[0].second,
      "the certificate of this replica ends in 30 day(s), on 2027-01-15: renew it (spool-repl cert renew), "
      "then reload");
  EXPECT_EQ(
      told.back().second,
      "the certificate of this replica has ended (2027-01-15): no new connection is possible until it is "
      "renewed");
}

TEST_F(ExpiryWatchTest, AStartLateWarnsOnce) {
  watch.look(2, ends, ends - 2 * day);
  watch.look(2, ends, ends - 2 * day + 3600);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, 2u);
  EXPECT_EQ(told[0].second, "the certificate of replica 2 ends in 2 day(s), on 2027-01-15");
}

TEST_F(ExpiryWatchTest, ARenewedCertificateIsAnother) {
  watch.look(0, ends, ends - 5 * day);
  watch.look(0, ends + 365 * day, ends - 5 * day);
  EXPECT_EQ(told.size(), 1u);
  watch.look(0, ends + 365 * day, ends + 364 * day);
  EXPECT_EQ(told.size(), 2u);
  watch.look(3, ends, ends - 5 * day);
  EXPECT_EQ(told.size(), 3u) << "each replica has its own";
}

}  // namespace
}  // namespace twinloft::repl::daemon
