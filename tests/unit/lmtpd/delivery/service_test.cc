// The service: the choice of the agent, the spool check before each delivery, and the limit for each user.
#include <signal.h>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "../support/service_fixture.h"

namespace twinloft::lmtpd {
namespace {

using ServiceTest = test::ServiceFixture;

TEST_F(ServiceTest, PicksTheAgentOfTheRowOrTheDefault) {
  start({spec("save saved")}, "maildir");
  EXPECT_EQ(deliver().code, 250);
  EXPECT_EQ(test::list(recipient_.user.maildir + "/new").size(), 1u);
  recipient_.user.agent = "agent";
  EXPECT_EQ(deliver().code, 250);
  EXPECT_TRUE(std::filesystem::exists(spool_ + "/ann/saved"));
  recipient_.user.agent = "unknown";
  Reply reply = deliver();
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.5");
}

TEST_F(ServiceTest, TheLogLineSaysWhatTheDeliveryDid) {
  AgentSpec syncing = spec("exit 0");
  syncing.name = "syncing";
  syncing.syncs = true;
  start({spec("exit 0"), syncing}, "maildir");
  testing::internal::CaptureStderr();
  EXPECT_EQ(deliver().code, 250);
  DeliveryOutcome stored = outcome_;
  for (const char* agent : {"agent", "syncing", "unknown"}) {
    recipient_.user.agent = agent;
    (void)deliver();
  }
  service_.reset();  // writes the rest of its log
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::filesystem::exists(stored.path)) << stored.path;
  for (const std::string& words :
       {fmt::format("bytes=\"{}\" durable=\"fsync\" path=\"{}\"", stored.bytes, stored.path),
        std::string("durable=\"after-agent\" path=\"\""), std::string("durable=\"by-agent\" path=\"\""),
        std::string("bytes=\"0\" durable=\"no\" path=\"\" detail=\"user ")})
    EXPECT_NE(log.find(words), std::string::npos) << words << "\n" << log;
}

// Such a row has no other values, so its uid 0 is not an error of the row.
TEST_F(ServiceTest, ANextHopThatNoSectionConfiguresIsNamed) {
  start({spec("save saved")}, "maildir");
  recipient_.user = User{};
  recipient_.user.name = "ann@example.org";
  recipient_.user.next_hop = "store1";
  testing::internal::CaptureStderr();
  Reply reply = deliver();
  std::string group = service_->group_of(recipient_.user);
  service_.reset();  // writes the rest of its log
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::to_string(reply.code) + " " + reply.enhanced, "451 4.3.5");
  EXPECT_NE(log.find("no section [next_hop.store1] configures"), std::string::npos) << log;
  EXPECT_NE(log.find("agent=\"next hop store1\""), std::string::npos) << log;
  EXPECT_EQ(group, "");
}

TEST_F(ServiceTest, RefusesUnknownDefaultsAndBadRoots) {
  DeliveryConfig config;
  config.spool.root = spool_;
  config.default_agent = "unknown";
  EXPECT_FALSE(DeliveryService::create(config, nullptr, clock_).has_value());
  config.default_agent = "maildir";
  config.spool.root = "relative";
  EXPECT_FALSE(DeliveryService::create(config, nullptr, clock_).has_value());
  config.spool.root = spool_;
  config.per_user_max = 0;
  EXPECT_FALSE(DeliveryService::create(config, nullptr, clock_).has_value());
}

TEST_F(ServiceTest, AnUnmountedSpoolSwallowsNothing) {
  ASSERT_TRUE(test::is_root()) << "mounting needs root";
  mount_tmpfs(spool_, "size=1m,mode=777");
  ASSERT_TRUE(write_spool_marker(spool_, volume_).has_value());
  start({spec("save " + path("ran"))}, "maildir");
  EXPECT_TRUE(service_->check_spool().has_value());
  EXPECT_EQ(deliver().code, 250);
  become_root();
  unmount(spool_);
  std::filesystem::remove(spool_ + "/" + spool_marker_name);  // the fixture has marked the mount point itself
  become_mail_user();
  EXPECT_FALSE(service_->check_spool().has_value());
  for (const char* agent : {"maildir", "agent"}) {
    recipient_.user.agent = agent;
    Reply reply = deliver();
    EXPECT_EQ(reply.code, 451);
    EXPECT_EQ(reply.enhanced, "4.3.0");
  }
  EXPECT_EQ(test::list(spool_ + "/ann").size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(path("ran")));
}

// The queue of the network side enforces these limits.
TEST_F(ServiceTest, SaysWhatBoundsAUsersDeliveries) {
  AgentSpec s = spec("exit 0");
  s.deliveries_max = 7;
  start({s}, "maildir");
  DeliveryLimits builtin = service_->limits(recipient_.user);
  EXPECT_EQ(builtin.per_user_max, 2u);
  EXPECT_EQ(builtin.shared.most, unlimited_deliveries);
  User of_agent = recipient_.user;
  of_agent.agent = "agent";
  DeliveryLimits external = service_->limits(of_agent);
  EXPECT_EQ(external.per_user_max, 2u);
  EXPECT_EQ(external.shared.name, "agent agent");
  EXPECT_EQ(external.shared.most, 7u);
}

// A message to many users of the built-in agent is one file for up to a hundred of them.
TEST_F(ServiceTest, DeliversToManyAtOnceWhereTheyShareAFile) {
  DeliveryConfig config;
  config.spool.root = spool_;
  config.spool.volume = volume_;
  config.per_user_max = 2;
  become_mail_user();
  auto plain = DeliveryService::create(config, nullptr, clock_).value();
  EXPECT_EQ(plain->group_of(recipient_.user), "");
  config.maildir.hard_links = true;
  auto service = DeliveryService::create(config, nullptr, clock_).value();
  EXPECT_NE(service->group_of(recipient_.user), "");
  User other = recipient_.user;
  other.agent = "agent";
  EXPECT_EQ(service->group_of(other), "");
  Envelope envelope = test::make_envelope();
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < 250; ++i) {
    envelope.recipients.push_back(recipient_);
    envelope.recipients.back().user.maildir = fmt::format("{}/ann/{}/Maildir", spool_, i % 125);
    envelope.recipients.back().user.name = fmt::format("{}@example.org", i % 125);  // each user twice
    all.push_back(i);
  }
  MessageBody body = test::in_memory(test::small_message);
  for (const DeliveryOutcome& one : service->deliver_group(envelope, all, body, {}))
    EXPECT_EQ(one.reply.code, 250);
  std::map<ino_t, unsigned> files;
  for (std::size_t i = 0; i < 125; ++i) {
    std::string incoming = envelope.recipients[i].user.maildir + "/new";
    auto names = test::list(incoming);
    ASSERT_EQ(names.size(), 2u);
    for (const std::string& name : names) {
      struct stat about{};
      ASSERT_EQ(::stat((incoming + "/" + name).c_str(), &about), 0);
      ++files[about.st_ino];
    }
  }
  std::vector<unsigned> counts;
  for (auto [inode, count] : files) counts.push_back(count);
  std::ranges::sort(counts);
  EXPECT_EQ(counts, (std::vector<unsigned>{50, 100, 100}));
  become_root();
  std::filesystem::remove(spool_ + "/" + spool_marker_name);
  become_mail_user();
  for (const DeliveryOutcome& one : service->deliver_group(envelope, all, body, {}))
    EXPECT_EQ(one.reply.code, 451);
}

}  // namespace
}  // namespace twinloft::lmtpd
