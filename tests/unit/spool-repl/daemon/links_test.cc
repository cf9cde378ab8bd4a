#include "links.h"

#include <gtest/gtest.h>

#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::daemon {
namespace {

struct LinksTest : testing::Test {
  LinksTest() {
    settings.name = "mail";
    superblock.volume = Uuid::parse("2f2e2d2c-4b5a-4978-8695-a4b3c2d1e0ff").value();
    superblock.volume_blocks = 1000;
    superblock.replica = 1;
  }
  Result<std::unique_ptr<Links>> start() {
    return Links::start(
        settings, superblock, {*loop, random, clock},
        [this](core::Event e) { events.push_back(std::move(e)); },
        [this](ReplicaId, const std::string& text) { troubles.push_back(text); },
        [this](ReplicaId, const std::string& text) { warnings.push_back(text); });
  }
  OsClock clock;
  OsRandom random;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 16}).value();
  VolumeSettings settings;
  Superblock superblock;
  std::vector<core::Event> events;
  std::vector<std::string> troubles, warnings;
};

TEST_F(LinksTest, WithoutPeersThereIsNothingToConnect) {
  auto links = start();
  ASSERT_TRUE(links);
  Status wanted = (*links)->set_wanted(true);
  ASSERT_FALSE(wanted);
  EXPECT_EQ(wanted.error().message, "this volume has no peers");
  (*links)->reload({PeerSettings{2, {"127.0.0.1:1"}}}, {});
  (*links)->flush();
  core::VolumeStatus status;
  (*links)->tell_troubles(status);
  EXPECT_TRUE(status.peers.empty());
}

TEST_F(LinksTest, AMissingSecretIsAnErrorOfTheStart) {
  settings.peers.resize(1);
  settings.peers[0].id = 2;
  settings.peers[0].addresses = {"127.0.0.1:1"};
  settings.listen = {"127.0.0.1:1"};
  settings.secret_file = "/nonexistent/secret";
  auto links = start();
  ASSERT_FALSE(links);
  EXPECT_NE(links.error().message.find("/nonexistent/secret"), std::string::npos) << links.error().message;
}

// No program listens there. The reason is logged, and shown in the peer's status.
TEST_F(LinksTest, WhyAPeerIsNotReachedShowsInStatus) {
  settings.peers.resize(1);
  settings.peers[0].id = 2;
  settings.peers[0].addresses = {"127.0.0.1:1"};
  settings.listen = {"127.0.0.1:0"};
  auto links = start();
  ASSERT_TRUE(links) << links.error().message;
  while (troubles.empty()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  EXPECT_NE(troubles[0].find("cannot connect to replica 2"), std::string::npos) << troubles[0];
  core::VolumeStatus status;
  status.peers.resize(1);
  status.peers[0].id = 2;
  (*links)->tell_troubles(status);
  EXPECT_EQ(status.peers[0].why, troubles[0]);
  EXPECT_TRUE((*links)->set_wanted(false));
  EXPECT_TRUE(events.empty());
}

}  // namespace
}  // namespace twinloft::repl::daemon
