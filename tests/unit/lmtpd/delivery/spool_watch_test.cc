#include "twinloft/lmtpd/delivery/spool_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <future>
#include <new>

#include "../../support/temporary_directory.h"
#include "twinloft/spool-state/spool_state.h"

namespace twinloft::lmtpd {
namespace {

using State = SpoolHealth::State;

struct SettableClock final : Clock {
  Instant now() const override { return {ns}; }
  WallTime wall() const override { return {}; }
  std::atomic<std::int64_t> ns = 1'000'000'000'000;
};

void await(const SpoolWatch& watch, State state) {
  while (watch.health().state != state) ::usleep(1000);
}

struct SpoolWatchTest : testing::Test {
  static inline SettableClock clock;  // outlives every look
  SpoolWatchConfig config{.every = std::chrono::milliseconds(1)};
};

TEST_F(SpoolWatchTest, FollowsWhatItSees) {
  auto full = std::make_shared<std::atomic<bool>>(false);
  auto suspended = std::make_shared<std::atomic<bool>>(false);
  SpoolWatch watch(
      config,
      {.look = [full](bool) { return SpoolLook{.bytes = 1000, .free_bytes = *full ? 0u : 500u}; },
       .tell =
           [suspended] {
             return VolumeTold{*suspended ? VolumeTold::State::suspended : VolumeTold::State::serving, {7}};
           }},
      clock);
  EXPECT_EQ(watch.health().state, State::serving);
  *full = true;
  await(watch, State::full);
  *suspended = true;
  await(watch, State::suspended);
  EXPECT_EQ(watch.health().since, Instant{7});
  *full = false, *suspended = false;
  await(watch, State::serving);
}

// Neither the caller nor the end of the watch waits for the look.
TEST_F(SpoolWatchTest, ALookThatHangsIsASuspension) {
  auto release = std::make_shared<std::promise<void>>();
  auto looks = std::make_shared<std::atomic<int>>(0);
  {
    SpoolWatch watch(config,
                     {.look =
                          [release, looks](bool) {
                            if (++*looks == 2) release->get_future().wait();
                            return SpoolLook{};
                          },
                      .tell = {}},
                     clock);
    while (*looks < 2) ::usleep(1000);
    EXPECT_EQ(watch.health().state, State::serving);
    const Instant begun = clock.now();
    clock.ns += std::chrono::nanoseconds(config.rules.hangs_for).count();
    EXPECT_EQ(watch.health(), (SpoolHealth{State::suspended, begun}));
  }
  release->set_value();
}

// The last result counts.
TEST_F(SpoolWatchTest, ALookWithoutMemoryEndsNothing) {
  auto looks = std::make_shared<std::atomic<int>>(0);
  SpoolWatch watch(config,
                   {.look =
                        [looks](bool) {
                          if (++*looks > 1) throw std::bad_alloc();
                          return SpoolLook{.read_only = true};
                        },
                    .tell = []() -> VolumeTold { throw std::bad_alloc(); }},
                   clock);
  while (*looks < 5) ::usleep(1000);
  EXPECT_EQ(watch.health().state, State::read_only);
}

TEST_F(SpoolWatchTest, SaysWhetherAnybodyAsks) {
  auto used = std::make_shared<std::atomic<int>>(0), idle = std::make_shared<std::atomic<int>>(0);
  SpoolWatch watch(config,
                   {.look =
                        [used, idle](bool in_use) {
                          ++*(in_use ? used : idle);
                          return SpoolLook{};
                        },
                    .tell = {}},
                   clock);
  while (*idle < 3) ::usleep(1000);
  EXPECT_EQ(*used, 0);
  for (int before = *used; *used == before; ::usleep(1000)) (void)watch.health();
}

struct EyesTest : testing::Test {
  TemporaryDirectory directory;
  OsFileOps ops;
  Uuid volume = *Uuid::parse("5c1a0e7e-0000-4000-8000-00000000c0de");
  SpoolConfig config{directory / "spool", volume};
  std::shared_ptr<Spool> spool = Spool::create(config, ops).value();
  SpoolWatch::Eyes eyes = eyes_for(spool, config, directory / "mail.state");
  SpoolRules rules{.reserve_bytes = 0, .reserve_inodes_most = 0};

  State seen() { return health_of(eyes.look(true), eyes.tell(), rules, {}).state; }
};

TEST_F(EyesTest, TheMarkerIsLookedAt) {
  EXPECT_EQ(seen(), State::not_mounted);
  std::filesystem::create_directory(directory / "spool");
  EXPECT_EQ(seen(), State::not_mounted);
  ASSERT_TRUE(write_spool_marker(directory / "spool", volume));
  EXPECT_EQ(seen(), State::serving);
  rules.reserve_bytes = UINT64_MAX;
  EXPECT_EQ(seen(), State::full);
}

TEST_F(EyesTest, TheStateFileOfThisVolumeCounts) {
  spool_state::StateFile file(directory / "mail.state");
  EXPECT_EQ(eyes.tell().state, VolumeTold::State::unknown) << "no file";
  auto told = [&](const std::string& state, const std::string& uuid) {
    EXPECT_TRUE(file.write(
        {.volume = "mail", .uuid = uuid, .state = state, .role = "primary", .since = {5'000'000}}));
    return eyes.tell();
  };
  EXPECT_EQ(told("suspended", volume.text()).state, VolumeTold::State::suspended);
  EXPECT_EQ(told("suspended", volume.text()).since, Instant{5'000'000});
  EXPECT_EQ(told("stalled", volume.text()).state, VolumeTold::State::stalled);
  EXPECT_EQ(told("failed", volume.text()).state, VolumeTold::State::failed);
  EXPECT_EQ(told("degraded", volume.text()).state, VolumeTold::State::serving);
  EXPECT_EQ(told("failed", "another").state, VolumeTold::State::unknown) << "it is of another volume";
}

TEST_F(EyesTest, AStateFileThatCannotBeReadIsUnknown) {
  std::filesystem::create_directory(directory / "mail.state");
  EXPECT_EQ(eyes.tell().state, VolumeTold::State::unknown);
}

}  // namespace
}  // namespace twinloft::lmtpd
