#include "volume_state.h"

#include <gtest/gtest.h>

#include <functional>

#include "wait_meter.h"

namespace twinloft::repl::daemon {
namespace {

// A volume with three replicas. This is replica 1, with the role `role` and no fault.
struct VolumeStateTest : testing::Test {
  VolumeSettings settings;
  core::VolumeStatus status;
  ResyncMeter meter;
  Duration oldest{0};
  Duration disk{0};
  bool lost = false;

  void good(core::Role role) {
    settings.name = "mail", settings.replica = 1;
    status = {};
    status.role = role;
    status.in_sync = set_of(1) | set_of(2) | set_of(3);
    oldest = Duration(0);
    lost = false;
    disk = Duration(0);
    for (ReplicaId id : {2, 3}) {
      core::PeerStatus& p = status.peers.emplace_back();
      p.id = id, p.in_sync = p.known = true, p.connection = core::ConnectionState::Connected;
    }
    status.peers[0].primary = role == core::Role::secondary;
  }
  NodeView view() {
    return {settings, {},     1 << 20, {},  {}, false, {}, status, meter, lost ? "LOST: it is gone" : "",
            {},       oldest, disk,    lost};
  }
  VolumeState state() { return state_of(view()); }
  std::string first_line() { return status_text(view()).substr(0, status_text(view()).find('\n')); }
};

TEST_F(VolumeStateTest, EachTroubleHasAStateAndStandsOnTheFirstLine) {
  using enum VolumeState;
  struct Case {
    const char* words;
    VolumeState expected;
    std::function<void()> trouble;
  };
  auto& s = status;
  const Case of_primary[] = {
      {"failed", failed, [&] { s.failed = true; }},
      {"failed, whatever else there is", failed,
       [&] { s.failed = s.suspended = s.peers[0].split_brain = true; }},
      {"another program has taken the device away", failed, [&] { lost = true; }},
      {"the same while writes wait", failed, [&] { lost = s.suspended = true; }},
      {"split brain", split_brain, [&] { s.peers[1].split_brain = true; }},
      {"split brain while it serves without the other", split_brain,
       [&] {
         s.peers[1].split_brain = true, s.peers[1].in_sync = false,
         s.peers[1].connection = core::ConnectionState::StandAlone;
       }},
      {"suspended", suspended, [&] { s.suspended = true, oldest = std::chrono::seconds(40); }},
      {"nothing gets through", stalled, [&] { oldest = std::chrono::seconds(40); }},
      {"a member is away", degraded, [&] { s.peers[0].connection = core::ConnectionState::Connecting; }},
      {"it was left out", degraded,
       [&] { s.peers[0].connection = core::ConnectionState::Connecting, s.peers[0].in_sync = false; }},
      {"one is away, another is filled", degraded,
       [&] { s.peers[0].connection = core::ConnectionState::Connecting, s.peers[1].sync_target = true; }},
      {"it is filled", resyncing, [&] { s.peers[0].in_sync = false, s.peers[0].sync_target = true; }},
      {"it catches up", resyncing, [&] { s.peers[0].in_sync = false; }},
      {"a replica by protocol A is no member", ok,
       [&] { s.peers[1].in_sync = false, s.peers[1].protocol = core::Protocol::A; }},
      {"a request waits for a moment", ok, [&] { oldest = std::chrono::milliseconds(900); }},
      {"good", ok, [] {}},
  };
  for (const Case& c : of_primary) {
    good(core::Role::primary);
    c.trouble();
    EXPECT_EQ(state(), c.expected) << c.words << ": " << name_of(state());
    EXPECT_TRUE(first_line().ends_with(state_text(c.expected))) << first_line();
  }
  const Case of_secondary[] = {
      {"no primary", no_primary, [&] { s.peers[0].primary = false; }},
      {"the primary is away", no_primary, [&] { s.peers[0].connection = core::ConnectionState::Connecting; }},
      {"its disk hangs, and its primary waits for it", stalled, [&] { disk = std::chrono::seconds(40); }},
      {"its disk takes its time", ok, [&] { disk = std::chrono::seconds(9); }},
      {"this one is filled", resyncing, [&] { s.inconsistent = true; }},
      {"this one catches up", resyncing, [&] { s.in_sync = set_of(2) | set_of(3); }},
      {"another one was left out", degraded, [&] { s.peers[1].in_sync = false; }},
      {"split brain", split_brain,
       [&] { s.peers[0].split_brain = true, s.peers[0].connection = core::ConnectionState::StandAlone; }},
      {"good", ok, [] {}},
  };
  for (const Case& c : of_secondary) {
    good(core::Role::secondary);
    c.trouble();
    EXPECT_EQ(state(), c.expected) << c.words << ": " << name_of(state());
  }
}

TEST_F(VolumeStateTest, TheAgeOfTheOldestRequestIsSaid) {
  good(core::Role::primary);
  oldest = std::chrono::seconds(41);
  EXPECT_NE(status_text(view()).find("the oldest request has waited for 41 s"), std::string::npos)
      << status_text(view());
  EXPECT_NE(status_json(view()).find("\"oldest_request_waits_ms\":41000"), std::string::npos);
  EXPECT_NE(status_json(view()).find("\"state\":\"stalled\""), std::string::npos);
}

// The status says "serving" only if clients are served.
TEST_F(VolumeStateTest, TheStateLineSaysWhatTheFirstLineSays) {
  good(core::Role::primary);
  status.last = status.durable = {7};
  status.peers[0].durable = {7}, status.peers[1].durable = {6};
  oldest = std::chrono::seconds(40);
  for (const std::string& text : {status_text(view()), status_line(view())}) {
    EXPECT_NE(text.find("STALLED: the oldest request has waited for 40 s. Not confirmed by replica 3"),
              text.npos)
        << text;
    EXPECT_EQ(text.find("serving"), text.npos) << text;
  }
  disk = std::chrono::seconds(12);
  EXPECT_NE(status_text(view()).find("replica 3. The disk here has not answered for 12 s"), std::string::npos)
      << status_text(view());
  disk = Duration(0);
  status.durable = {6};
  EXPECT_NE(status_text(view()).find("Not confirmed by replica 3, the journal here"), std::string::npos)
      << status_text(view());
  good(core::Role::secondary);
  disk = std::chrono::seconds(12);
  for (const std::string& text : {status_text(view()), status_line(view())})
    EXPECT_NE(text.find("STALLED: The disk here has not answered for 12 s"), text.npos) << text;
  EXPECT_NE(status_json(view()).find("\"oldest_disk_operation_ms\":12000"), std::string::npos);
  good(core::Role::primary);
  lost = true;
  EXPECT_NE(status_text(view()).find("FAILED: the block device is lost"), std::string::npos);
  EXPECT_EQ(status_text(view()).find("serving"), std::string::npos) << status_text(view());
}

TEST(WaitMeterTest, TheOldestOfThoseThatWait) {
  WaitMeter meter;
  Instant now{1'000'000'000};
  auto pass = [&](int ms) { now = now + std::chrono::milliseconds(ms); };
  EXPECT_EQ(meter.oldest(now), Duration(0));
  ports::IoRequest first, second, third, fourth;
  meter.begin(first, now);
  pass(50);
  meter.begin(second, now);  // within the meter's resolution, as old as the first
  pass(450);
  meter.begin(third, now);
  EXPECT_EQ(meter.oldest(now), std::chrono::milliseconds(500));
  meter.end(first);
  EXPECT_EQ(meter.oldest(now), std::chrono::milliseconds(500));
  pass(1000);
  meter.begin(fourth, now);
  meter.end(third);
  EXPECT_EQ(meter.oldest(now), std::chrono::milliseconds(1500)) << "in any order";
  meter.end(second);
  EXPECT_EQ(meter.oldest(now), Duration(0));
  pass(200);
  EXPECT_EQ(meter.oldest(now), std::chrono::milliseconds(200));
  meter.end(fourth);
  meter.begin(first, now);
  EXPECT_EQ(meter.oldest(now), Duration(0));
  meter.end(first);
}

}  // namespace
}  // namespace twinloft::repl::daemon
