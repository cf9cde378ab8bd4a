#include "front_end_life.h"

#include <gtest/gtest.h>

#include "../support/manual_loop.h"
#include "fake_front_ends.h"

namespace twinloft::repl::daemon {
namespace {

using core::Role;
using core::RoleChange;

struct FrontEndLifeTest : testing::Test, FrontEndLife::Volume {
  FrontEndLifeTest() { status.role = Role::primary; }

  std::unique_ptr<FrontEnds> make_front_ends() override {
    made.push_back(std::make_shared<Made>());
    return std::make_unique<FakeFrontEnds>(made.back());
  }
  bool is_draining() override { return draining; }
  void stand_down() override { did += "stand-down "; }
  void ask_core_to_demote(FrontEndLife::Reply reply) override {
    did += reply ? "demote " : "demote-unasked ";
    if (reply) core_replies.push_back(std::move(reply));
  }
  void device_is_taken_away() override { did += "taken-away "; }
  void fail_volume(const std::string& why, bool tell) override {
    did += "fail(" + why + (tell ? ", told) " : ") ");
  }
  void end() override { did += "end "; }
  void gives_back(const std::string& why) override { did += "give-back(" + why + ") "; }

  void promote() { life->on_role({Role::primary}); }
  void lose() { life->on_role({Role::secondary, true}); }
  void attach() {
    promote();
    made.back()->started({});
  }
  std::string take() { return std::exchange(did, ""); }
  FrontEndLife::Reply reply() {
    return [this](Result<std::string> r) { answers.push_back(r ? *r : "error: " + r.error().message); };
  }
  FrontEndLife::Done done(const char* who) {
    return [this, who](const Status& s) { answers.push_back(who + (s ? ": ok" : ": " + s.error().message)); };
  }

  ManualLoop loop;
  core::VolumeStatus status;
  bool draining = false;
  std::string did;
  std::vector<std::string> answers;
  std::vector<std::shared_ptr<Made>> made;
  std::vector<FrontEndLife::Reply> core_replies;
  std::unique_ptr<FrontEndLife> life = std::make_unique<FrontEndLife>(loop, *this);
};

TEST_F(FrontEndLifeTest, APromotionIsDoneWhenItsDeviceIsThere) {
  promote();
  ASSERT_TRUE(life->is_attaching());
  life->when_attached(done("first"));
  life->when_attached(done("second"));
  EXPECT_TRUE(answers.empty());
  made[0]->started({});
  EXPECT_EQ(answers, (std::vector<std::string>{"first: ok", "second: ok"}));
  EXPECT_FALSE(life->role_changes());
  EXPECT_EQ(take(), "");
}

TEST_F(FrontEndLifeTest, APromotionWhoseDeviceCannotBeMadeIsGivenBack) {
  promote();
  life->when_attached(done("operator"));
  made[0]->started(fail(Errc::io, "no loop device"));
  EXPECT_EQ(answers, std::vector<std::string>{"operator: no loop device"});
  EXPECT_EQ(take(), "give-back(no loop device) ");
  ASSERT_EQ(made[0]->stops.size(), 1u);
  EXPECT_TRUE(made[0]->stops[0].first) << "by force";
  made[0]->stops[0].second({});
  EXPECT_EQ(take(), "demote-unasked ");
  EXPECT_FALSE(made[0]->gone) << "not from within its own callback";
  loop.run_one();
  EXPECT_TRUE(made[0]->gone);
}

TEST_F(FrontEndLifeTest, WhereNobodyWaitsTheVolumeEnds) {
  for (bool at_start : {true, false}) {
    promote();
    if (at_start) life->report_start(done("start"));
    made.back()->started(fail(Errc::io, "no loop device"));
    EXPECT_EQ(take(), at_start ? "fail(no loop device) " : "fail(no loop device, told) ");
    made.back()->stops[0].second({});
    EXPECT_EQ(take(), "end ");
    life = std::make_unique<FrontEndLife>(loop, *this);
  }
  EXPECT_EQ(answers, std::vector<std::string>{"start: no loop device"});
}

TEST_F(FrontEndLifeTest, AStopExplainsWhyTheDeviceIsNotThere) {
  promote();
  draining = true;
  made[0]->started(fail(Errc::unavailable, "stopped"));
  EXPECT_EQ(take(), "");
}

TEST_F(FrontEndLifeTest, TheStartIsReportedWithItsFrontEnds) {
  life->report_start(done("secondary"));
  EXPECT_EQ(answers, std::vector<std::string>{"secondary: ok"});
  promote();
  life->report_start(done("primary"));
  EXPECT_EQ(answers.size(), 1u);
  made[0]->started({});
  EXPECT_EQ(answers.back(), "primary: ok");
  promote();
  life->report_start(done("ended"));
  life->end();
  EXPECT_TRUE(made.back()->gone);
  EXPECT_EQ(answers.back(), "ended: stopped while it was being started");
}

TEST_F(FrontEndLifeTest, ADemotionStopsTheDeviceFirst) {
  attach();
  life->demote(status, reply());
  EXPECT_EQ(take(), "") << "the core gets the request afterwards";
  ASSERT_EQ(made[0]->stops.size(), 1u);
  EXPECT_FALSE(made[0]->stops[0].first);
  EXPECT_TRUE(life->role_changes());
  life->demote(status, reply());
  EXPECT_EQ(answers, std::vector<std::string>{"error: a change of role is under way"});
  made[0]->stops[0].second({});
  EXPECT_EQ(take(), "stand-down demote ");
  core_replies[0]("demoted\n");
  EXPECT_EQ(answers.back(), "demoted\n");
  loop.run_one();
  EXPECT_EQ(life->current(), nullptr);
}

TEST_F(FrontEndLifeTest, ADeviceInUseKeepsThePrimary) {
  attach();
  life->demote(status, reply());
  made[0]->stops[0].second(fail(Errc::conflict, "/dev/loop3 is mounted"));
  EXPECT_EQ(answers,
            std::vector<std::string>{
                "error: /dev/loop3 is mounted. Unmount it first; until then this replica stays Primary"});
  EXPECT_EQ(take(), "");
  EXPECT_FALSE(life->role_changes());
  EXPECT_NE(life->current(), nullptr);
}

TEST_F(FrontEndLifeTest, WhatADemotionIsRefusedFor) {
  promote();
  life->demote(status, reply());
  EXPECT_EQ(answers.back(), "error: a change of role is under way");
  made[0]->started({});
  status.suspended = true;
  status.waits_for = "replica 2";
  life->demote(status, reply());
  EXPECT_EQ(answers.back(), "error: cannot demote now: writes wait for replica 2");
  EXPECT_TRUE(made[0]->stops.empty());
  EXPECT_EQ(take(), "");
}

TEST_F(FrontEndLifeTest, ASecondaryGivesUpAPromotionThatWaits) {
  status.role = Role::secondary;
  life->demote(status, reply());
  EXPECT_EQ(take(), "stand-down demote ");
}

TEST_F(FrontEndLifeTest, ALostRoleTakesTheDeviceAwayAndAnswers) {
  attach();
  life->demote(status, reply());
  lose();
  EXPECT_EQ(answers, std::vector<std::string>{
                         "error: another replica was promoted meanwhile: this replica is Secondary"});
  EXPECT_EQ(take(), "stand-down taken-away ");
  ASSERT_EQ(made[0]->stops.size(), 2u);
  EXPECT_TRUE(made[0]->stops[1].first);
  made[0]->stops[0].second({});  // the late answer to the demotion's stop
  EXPECT_EQ(take(), "");
  made[0]->stops[1].second({});
  loop.run_one();
  EXPECT_TRUE(made[0]->gone);
}

TEST_F(FrontEndLifeTest, ALostRoleWhileTheDeviceIsBeingAttached) {
  promote();
  life->when_attached(done("operator"));
  life->report_start(done("start"));
  lose();
  EXPECT_EQ(answers, (std::vector<std::string>{
                         "operator: another replica was promoted while the device here was being attached",
                         "start: ok"}));
  take();
  made[0]->started(fail(Errc::unavailable, "aborted"));
  EXPECT_EQ(take(), "") << "its end is not reported any more";
}

TEST_F(FrontEndLifeTest, TheNextPromotionWaitsUntilTheOldDeviceIsGone) {
  attach();
  lose();
  promote();
  EXPECT_EQ(made.size(), 1u);
  EXPECT_TRUE(life->is_attaching());
  EXPECT_EQ(life->current(), nullptr);
  made[0]->stops[0].second({});
  loop.run_one();
  EXPECT_TRUE(made[0]->gone);
  EXPECT_EQ(made.size(), 2u);
  EXPECT_NE(life->current(), nullptr);
}

TEST_F(FrontEndLifeTest, AVolumeThatIsBeingStoppedGetsNoNewDevice) {
  attach();
  lose();
  promote();
  draining = true;
  made[0]->stops[0].second({});
  loop.run_one();
  EXPECT_EQ(made.size(), 1u);
}

TEST_F(FrontEndLifeTest, AStopWithoutFrontEndsIsDoneAtOnce) {
  life->stop(false, done("stop"));
  EXPECT_EQ(answers, std::vector<std::string>{"stop: ok"});
  attach();
  life->stop(true, done("stop"));
  ASSERT_EQ(made[0]->stops.size(), 1u);
  EXPECT_TRUE(made[0]->stops[0].first);
}

}  // namespace
}  // namespace twinloft::repl::daemon
