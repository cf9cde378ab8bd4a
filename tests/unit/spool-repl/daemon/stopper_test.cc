#include "stopper.h"

#include <gtest/gtest.h>

#include "../support/manual_loop.h"

namespace twinloft::repl::daemon {
namespace {

constexpr Duration second = std::chrono::seconds(1);

// A volume that records its requests, and answers when the test says so.
struct FakeVolume final : Stopper::Volume {
  core::VolumeStatus volume_status() override { return status; }
  bool is_settled() override { return settled; }
  Duration oldest_request() override { return oldest; }
  bool role_changes() override { return changing; }
  void stop_front_ends(bool force, std::function<void(Status)> done) override {
    did += force ? "take " : "stop ";
    waiting.push_back(std::move(done));
  }
  void fail_requests() override { did += "fail "; }
  void flush(std::function<void()> done) override {
    did += "flush ";
    flushed = std::move(done);
  }
  void checkpoint() override { did += "checkpoint "; }
  void say_waits(const std::string& why) override { said.push_back(why); }
  void ended(bool failed) override { did += failed ? "failed" : "ended"; }

  void answer(Status s) {
    auto done = std::move(waiting.front());
    waiting.erase(waiting.begin());
    done(std::move(s));
  }
  std::string take() { return std::exchange(did, ""); }

  core::VolumeStatus status;
  bool settled = false, changing = false;
  Duration oldest{0};
  std::string did;
  std::vector<std::string> said;
  std::vector<std::function<void(Status)>> waiting;
  std::function<void()> flushed;
};

struct StopperTest : testing::Test {
  ManualLoop loop;
  FakeVolume volume;
  Stopper stopper{loop, volume};
  StopperTest() { volume.status.role = core::Role::primary; }
};

TEST_F(StopperTest, APrimaryFlushesAndBringsEverythingHome) {
  stopper.ask(false);
  EXPECT_EQ(volume.take(), "stop ");
  volume.answer({});
  EXPECT_EQ(volume.take(), "flush checkpoint ");
  stopper.turn();
  EXPECT_EQ(volume.take(), "");
  volume.flushed();
  stopper.turn();
  EXPECT_EQ(volume.take(), "checkpoint ");
  stopper.turn();
  EXPECT_EQ(volume.take(), "");
  volume.settled = true;
  stopper.turn();
  stopper.turn();
  EXPECT_EQ(volume.take(), "ended");
  EXPECT_TRUE(volume.said.empty());
}

TEST_F(StopperTest, ASecondaryHasNothingToFlush) {
  volume.status.role = core::Role::secondary;
  stopper.ask(false);
  volume.answer({});
  EXPECT_EQ(volume.take(), "stop checkpoint ");
  volume.settled = true;
  stopper.turn();
  stopper.turn();
  EXPECT_EQ(volume.take(), "checkpoint ended");
}

TEST_F(StopperTest, TurnsWhileItDrainsAlthoughNothingHappens) {
  stopper.ask(false);
  volume.answer({});
  loop.pass(second * 2);  // ends the wait for a refusal
  EXPECT_EQ(loop.timers(), 1u);
  volume.status.failed = true;
  stopper.turn();
  loop.pass(second);
  EXPECT_EQ(loop.timers(), 0u) << "not longer";
}

TEST_F(StopperTest, ARefusalIsSaidOnceAndTriedAgainEachSecond) {
  Status in_use = fail(Errc::conflict, "/dev/loop3 is mounted");
  stopper.ask(false);
  volume.answer(in_use);
  ASSERT_EQ(volume.said.size(), 1u);
  EXPECT_EQ(volume.said[0], stopper.waits_for());
  volume.take();
  volume.changing = true;
  loop.pass(second);
  EXPECT_EQ(volume.take(), "") << "a change of role is using the front ends";
  volume.changing = false;
  for (int i = 0; i < 3; ++i) {
    loop.pass(second);
    EXPECT_EQ(volume.take(), "stop ");
    volume.answer(in_use);
  }
  EXPECT_EQ(volume.said.size(), 1u);
  loop.pass(second);
  volume.answer({});
  EXPECT_EQ(volume.take(), "stop flush checkpoint ");
  EXPECT_EQ(stopper.waits_for(), "");
}

TEST_F(StopperTest, SaysThatASuspendedVolumeHoldsItUp) {
  volume.status.suspended = true;
  volume.status.waits_for = "replica 2";
  stopper.ask(false);
  ASSERT_EQ(volume.said.size(), 1u);
  loop.pass(second * 3);
  EXPECT_EQ(volume.said.size(), 1u);
  volume.status.waits_for = "replica 3";
  loop.pass(second);
  EXPECT_EQ(volume.said.size(), 2u) << "another reason";
}

TEST_F(StopperTest, SaysThatSlowRequestsHoldItUp) {
  stopper.ask(false);
  EXPECT_TRUE(volume.said.empty());
  volume.oldest = second * 2;
  loop.pass(second);
  ASSERT_EQ(volume.said.size(), 1u);
  EXPECT_EQ(volume.said[0].find("requests of the device are not answered"), 0u);
}

TEST_F(StopperTest, ForceFailsRequestsBeforeTheDeviceGoes) {
  stopper.ask(false);
  stopper.ask(false);
  EXPECT_EQ(volume.take(), "stop ");
  stopper.ask(true);
  EXPECT_EQ(volume.take(), "fail take ");
  volume.status.failed = true;  // as force does
  volume.answer(fail(Errc::conflict, "in use"));
  EXPECT_EQ(volume.take(), "");
  volume.answer({});
  EXPECT_EQ(volume.take(), "flush checkpoint ");
  stopper.turn();
  EXPECT_EQ(volume.take(), "ended") << "by force, so the volume has not failed";
}

TEST_F(StopperTest, AFailureFromBeforeTheStopIsReportedAtItsEnd) {
  volume.status.failed = true;
  stopper.ask(true);
  volume.answer(fail(Errc::conflict, "in use"));
  EXPECT_EQ(volume.take(), "stop fail take ") << "cleanly first";
  volume.answer({});
  stopper.turn();
  EXPECT_EQ(volume.take(), "flush checkpoint failed");
}

}  // namespace
}  // namespace twinloft::repl::daemon
