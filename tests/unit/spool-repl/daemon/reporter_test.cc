#include "reporter.h"

#include <gtest/gtest.h>

#include "../../support/temporary_directory.h"

namespace twinloft::repl::daemon {
namespace {

struct ReporterTest : testing::Test {
  ReporterTest() {
    settings.name = "mail";
    settings.archive = directory.path();
    reporter = std::make_unique<Reporter>(settings, clock);
  }
  std::vector<Event> stored() {
    reporter.reset();  // returns once all added events are in the file
    return load_events(events_path(settings));
  }
  OsClock clock;
  TemporaryDirectory directory;
  VolumeSettings settings;
  std::unique_ptr<Reporter> reporter;
};

TEST_F(ReporterTest, NamesTheEpochThatTheVolumeIsIn) {
  reporter->say("recovered", "before there is a core");
  std::uint64_t epoch = 7;
  reporter->set_epoch([&] { return epoch; });
  reporter->warn("failed", "in the epoch");
  epoch = 8;
  reporter->say("connected", "in the next", false, 2);
  reporter->say("role", "about another one", true, 0, 3);
  std::vector<Event> all = stored();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].epoch, 0u);
  EXPECT_FALSE(all[0].serious);
  EXPECT_EQ(all[1].epoch, 7u);
  EXPECT_TRUE(all[1].serious);
  EXPECT_EQ(all[2].epoch, 8u);
  EXPECT_EQ(all[2].peer, 2u);
  EXPECT_EQ(all[3].epoch, 3u);
}

TEST_F(ReporterTest, WhatIsSaidAgainAndAgainIsSaidOnce) {
  for (int i = 0; i < 3; ++i) {
    reporter->say("connection", "refused", true, 2, 0, true);
    reporter->say("resync-progress", "half");
  }
  EXPECT_EQ(stored().size(), 4u);
}

TEST_F(ReporterTest, AStartThatFailedIsInTheEvents) {
  reporter->note_failed_start("the journal is damaged");
  std::vector<Event> all = stored();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kind, "failed");
  EXPECT_TRUE(all[0].serious);
  EXPECT_EQ(all[0].text, "could not be started: the journal is damaged");
}

}  // namespace
}  // namespace twinloft::repl::daemon
