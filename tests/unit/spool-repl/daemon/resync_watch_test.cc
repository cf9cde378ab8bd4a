#include "resync_watch.h"

#include <gtest/gtest.h>

#include "../support/manual_loop.h"

namespace twinloft::repl::daemon {
namespace {

constexpr std::uint64_t watched_blocks = 262'144;  // 1 GiB
constexpr Duration second = std::chrono::seconds(1);

struct ResyncWatchTest : testing::Test {
  ResyncWatchTest() {
    status.role = core::Role::primary;
    core::PeerStatus& p = status.peers.emplace_back();
    p.id = 2;
    p.connection = core::ConnectionState::Connected;
    p.sync_target = true;
    p.sync_total_blocks = watched_blocks;
  }
  // Each second the resync gets one percent further.
  void pass(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      status.peers[0].synced_blocks += watched_blocks / 100;
      loop.pass(second);
    }
  }

  ManualLoop loop;
  core::VolumeStatus status;
  std::vector<std::string> reports;
  ResyncWatch watch{loop, watched_blocks, [this] { return status; },
                    [this](ReplicaId, std::string text) { reports.push_back(std::move(text)); }};
};

TEST_F(ResyncWatchTest, ReportsEachTenthOnce) {
  watch.begin();
  pass(35);
  EXPECT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports.front().find("resync of replica 2: "), 0u) << reports.front();
  EXPECT_NE(reports.front().find("% of 1024 MiB"), std::string::npos) << reports.front();
}

TEST_F(ResyncWatchTest, NoMoreThanOneInTenSeconds) {
  watch.begin();
  for (int i = 0; i < 9; ++i) {
    status.peers[0].synced_blocks += watched_blocks / 10;
    loop.pass(second);
  }
  EXPECT_LE(reports.size(), 1u);
}

TEST_F(ResyncWatchTest, SamplesWhileThereIsOneAndBeginsAgain) {
  watch.begin();
  watch.begin();
  EXPECT_EQ(loop.timers(), 1u);
  pass(2);
  EXPECT_EQ(loop.timers(), 1u);
  status.peers[0].sync_target = false;
  loop.pass(second);
  EXPECT_EQ(loop.timers(), 0u) << "nothing is sampled while there is no resync";
  status.peers[0].sync_target = true;
  watch.begin();
  EXPECT_EQ(loop.timers(), 1u);
}

}  // namespace
}  // namespace twinloft::repl::daemon
