// The service: which agent, the spool check before anything else, and the bound per user.
#include <signal.h>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "service_fixture.h"

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
  std::filesystem::remove(spool_ + "/" +
                          spool_marker_name);  // the mount point itself was marked by the fixture
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

TEST_F(ServiceTest, BoundsDeliveriesPerUser) {
  std::string fifo = path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  ::chmod(fifo.c_str(), 0666);
  AgentSpec s = spec("announce " + fifo);
  start({s}, "maildir");
  Recipient waiting = recipient_;
  waiting.user.agent = "agent";
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      MessageBody body = test::in_memory(test::small_message);
      EXPECT_EQ(service_->deliver(test::make_envelope(), waiting, body).code, 451);
    });
  Fd reader(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 2> started;
  ASSERT_TRUE(read_exact(reader.get(), started).has_value());
  Reply reply = deliver();  // the third for the same user
  EXPECT_EQ(reply.code, 451);
  EXPECT_EQ(reply.enhanced, "4.3.0");
  Recipient bob = recipient_;
  bob.user.name = "bob@example.org";
  bob.user.maildir = spool_ + "/bob/Maildir";
  MessageBody body = test::in_memory(test::small_message);
  EXPECT_EQ(service_->deliver(test::make_envelope(), bob, body).code, 250);
  become_root();
  ::kill(spawner_->pid(), SIGKILL);
  become_mail_user();
  for (auto& t : threads) t.join();
  EXPECT_EQ(deliver().code, 250);  // the slots were given back
}

// A message to many of the built-in agent's users is one file for up to a hundred of them.
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
    envelope.recipients.back().user.name = fmt::format("{}@example.org", i % 125);  // each of them twice, and no more than per_user_max says
    all.push_back(i);
  }
  MessageBody body = test::in_memory(test::small_message);
  for (const Reply& reply : service->deliver_group(envelope, all, body, {})) EXPECT_EQ(reply.code, 250);
  std::map<ino_t, unsigned> files;
  for (std::size_t i = 0; i < 125; ++i) {
    std::string incoming = envelope.recipients[i].user.maildir + "/new";
    auto names = test::list(incoming);
    ASSERT_EQ(names.size(), 2u);
    for (const std::string& name : names) {
      struct stat about {};
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
  for (const Reply& reply : service->deliver_group(envelope, all, body, {})) EXPECT_EQ(reply.code, 451);
}

// A slow agent does not take the workers of others.
TEST_F(ServiceTest, BoundsDeliveriesPerAgent) {
  std::string fifo = path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  ::chmod(fifo.c_str(), 0666);
  AgentSpec s = spec("announce " + fifo);
  s.deliveries_max = 1;
  start({s}, "maildir");
  Recipient slow = recipient_;
  slow.user.agent = "agent";
  std::thread first([&] {
    MessageBody body = test::in_memory(test::small_message);
    EXPECT_EQ(service_->deliver(test::make_envelope(), slow, body).code, 451);
  });
  Fd reader(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 1> started;
  ASSERT_TRUE(read_exact(reader.get(), started).has_value());
  Recipient other = slow;
  other.user.name = "carl@example.org";
  MessageBody body = test::in_memory(test::small_message);
  Reply refused = service_->deliver(test::make_envelope(), other, body);
  EXPECT_EQ(std::to_string(refused.code) + " " + refused.enhanced, "451 4.3.0");
  EXPECT_EQ(deliver().code, 250) << "by the built-in agent";
  become_root();
  ::kill(spawner_->pid(), SIGKILL);
  become_mail_user();
  first.join();
}

}  // namespace
}  // namespace twinloft::lmtpd
