#include "resync_meter.h"

#include <gtest/gtest.h>

#include "status_text.h"

namespace twinloft::repl::daemon {
namespace {

constexpr std::uint64_t volume_blocks = 262'144;  // 1 GiB

struct ResyncMeterTest : testing::Test {
  ResyncMeterTest() {
    status.role = core::Role::primary;
    status.in_sync = set_of(1);
    core::PeerStatus p;
    p.id = 2;
    p.connection = core::ConnectionState::Connected;
    p.sync_target = true;
    p.sync_total_blocks = volume_blocks;
    status.peers.push_back(p);
  }
  bool at(int seconds, std::uint64_t done) {
    status.peers[0].synced_blocks = done;
    return meter.sample(status, volume_blocks, Instant{std::int64_t{seconds} * 1'000'000'000});
  }
  std::optional<ResyncProgress> progress() { return meter.of(status.peers[0], volume_blocks); }

  core::VolumeStatus status;
  ResyncMeter meter;
};

TEST_F(ResyncMeterTest, RateAndEstimateAreOfTheLastSeconds) {
  EXPECT_TRUE(at(0, 0));
  ASSERT_TRUE(progress());
  EXPECT_EQ(progress()->total_bytes, std::uint64_t{1} << 30);
  EXPECT_EQ(progress()->bytes_per_second, 0u);
  EXPECT_FALSE(progress()->seconds_left);
  std::uint64_t done = 0;
  for (int s = 1; s <= 20; ++s) at(s, done += 2560);  // 10 MiB/s
  EXPECT_EQ(progress()->bytes_per_second, 10u << 20);
  EXPECT_EQ(progress()->done_bytes, 200u << 20);
  EXPECT_EQ(progress()->seconds_left, 82u);
  for (int s = 21; s <= 40; ++s) at(s, done += 256);  // a tenth of that rate
  EXPECT_EQ(progress()->bytes_per_second, 1u << 20);
  for (int s = 41; s <= 60; ++s) at(s, done);
  EXPECT_EQ(progress()->bytes_per_second, 0u);
  EXPECT_FALSE(progress()->seconds_left);
}

TEST_F(ResyncMeterTest, BeginsAnewWithTheResync) {
  for (int s = 0; s < 10; ++s) at(s, 10'000 * static_cast<unsigned>(s));
  at(10, 100);
  EXPECT_EQ(progress()->bytes_per_second, 0u);
  at(11, 356);
  EXPECT_EQ(progress()->bytes_per_second, 1u << 20);
  status.peers[0].sync_target = false;
  EXPECT_FALSE(at(12, 356));
  EXPECT_FALSE(progress());
}

TEST_F(ResyncMeterTest, EachTenthIsToldOnce) {
  at(0, 0);
  EXPECT_TRUE(meter.passed_tenths().empty());
  at(1, volume_blocks / 3);
  EXPECT_EQ(meter.passed_tenths(), std::vector<ReplicaId>{2});
  EXPECT_TRUE(meter.passed_tenths().empty());
  at(2, volume_blocks / 2);
  EXPECT_EQ(meter.passed_tenths(), std::vector<ReplicaId>{2});
}

TEST_F(ResyncMeterTest, StatusShowsIt) {
  VolumeSettings settings;
  settings.name = "mail";
  settings.replica = 1;
  NodeView view{settings, {}, volume_blocks * block_size, "", "", false, "", status, meter};
  at(0, 0);
  at(10, volume_blocks / 2);
  std::string text = status_text(view), line = status_line(view), json = status_json(view);
  EXPECT_NE(text.find("[###############...............] 50% of 1024 MiB  51 MiB/s, 10 s left"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("DEGRADED"), std::string::npos) << text;
  EXPECT_NE(line.find("DEGRADED"), std::string::npos) << line;
  EXPECT_NE(line.find("peer 2 SyncTarget Inconsistent 50% of 1024 MiB  51 MiB/s, 10 s left"),
            std::string::npos)
      << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_NE(json.find(R"("resync":{"done_bytes":536870912,"total_bytes":1073741824,)"
                      R"("bytes_per_second":53687091,"seconds_left":10})"),
            std::string::npos)
      << json;
  status.suspended = true;
  status.waits_for = "replica 2";
  status.peers[0].split_brain = true;
  EXPECT_NE(status_line(view).find("SUSPENDED: writes wait for replica 2"), std::string::npos);
  EXPECT_NE(status_text(view).find("SPLIT BRAIN"), std::string::npos);
}

}  // namespace
}  // namespace twinloft::repl::daemon
