#include "state_teller.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "../../support/temporary_directory.h"

namespace twinloft::repl::daemon {
namespace {

struct ManualClock final : Clock {
  Instant now() const override { return time; }
  WallTime wall() const override { return {1'764'140'400, 0}; }
  Instant time{1'000'000'000};
};

struct StateTellerTest : testing::Test {
  TemporaryDirectory directory;
  ManualClock clock;
  VolumeSettings settings() const {
    VolumeSettings s;
    s.name = "mail";
    s.state_file = directory / "run/mail.state";
    return s;
  }
  // Waits until the file has a state with this reason.
  spool_state::SpoolState await(std::string_view reason) const {
    for (;; ::usleep(1000)) {
      auto read = spool_state::read_state(directory / "run/mail.state");
      EXPECT_TRUE(read) << read.error().message;
      if (!read) return {};
      if (*read && (*read)->reason == reason) return **read;
    }
  }
};

TEST_F(StateTellerTest, TellsChangesAndWhenTheStateBegan) {
  std::filesystem::create_directory(directory / "run");
  StateTeller teller(settings(), "the uuid", clock);
  teller.tell(VolumeState::suspended, "primary", "writes wait for replica 2");
  auto told = await("writes wait for replica 2");
  EXPECT_EQ(told.volume, "mail");
  EXPECT_EQ(told.uuid, "the uuid");
  EXPECT_EQ(told.state, "suspended");
  EXPECT_EQ(told.role, "primary");
  EXPECT_EQ(told.since, clock.time);
  EXPECT_EQ(told.time, "2025-11-26T07:00:00Z");
  Instant begun = clock.time;
  clock.time = clock.time + std::chrono::seconds(9);
  teller.tell(VolumeState::suspended, "primary", "writes wait for the arbiter");
  EXPECT_EQ(await("writes wait for the arbiter").since, begun) << "the state is the same";
  teller.tell(VolumeState::ok, "primary", "");
  EXPECT_EQ(await("").since, clock.time);
}

TEST_F(StateTellerTest, WhatIsToldAlreadyIsNotWrittenAgain) {
  std::filesystem::create_directory(directory / "run");
  StateTeller teller(settings(), "", clock);
  for (int i = 0; i < 100; ++i) teller.tell(VolumeState::ok, "primary", "");
  teller.tell(VolumeState::ok, "secondary", "the last one");
  EXPECT_LE(await("the last one").number, 2u);
}

TEST_F(StateTellerTest, AFailedWriteIsTriedAgain) {
  StateTeller teller(settings(), "", clock);
  teller.tell(VolumeState::ok, "primary", "told later");
  ::usleep(20'000);
  std::filesystem::create_directory(directory / "run");
  EXPECT_EQ(await("told later").state, "ok");
}

TEST_F(StateTellerTest, WithoutAPathNothingIsWritten) {
  VolumeSettings s = settings();
  s.state_file.clear();
  StateTeller teller(s, "", clock);
  teller.tell(VolumeState::ok, "primary", "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace twinloft::repl::daemon
