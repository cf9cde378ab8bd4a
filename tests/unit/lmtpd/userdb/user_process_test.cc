// Look-ups in another process: its answers arrive, its end is noticed, and its packets are validated.
#include "twinloft/lmtpd/userdb/user_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "sources.h"
#include "user_wire.h"

namespace twinloft::lmtpd {
namespace {

using namespace std::chrono_literals;

// The answer depends on the key only, because the process has a copy of the test's memory.
class Far final : public UserSource {
 public:
  FindResult find(const UserKey& key) override {
    if (key.local_part == "nobody") return std::nullopt;
    if (key.local_part == "broken") return fail(Errc::conflict, "not sure of {}", key.address());
    if (key.local_part == "throw") throw std::runtime_error("find");
    if (key.local_part == "ends") ::_exit(3);
    if (key.local_part == "alias") return Alias{"ann@" + key.domain};
    if (key.local_part == "long") return Alias{std::string(100'000, 'x')};
    if (key.local_part == "slow") ::usleep(20'000);
    if (key.local_part == "pid") return user_named(std::to_string(::getpid()));
    User user = user_named(key.address());
    user.uid = 7;
    user.maildir = "/srv/mail/Maildir";
    user.agent = "lda";
    user.state = UserState::deferred;
    user.quota = {1000, 10};
    user.detail_folders = FoldersByDetail::create;
    if (key.local_part == "far") user.next_hop = "store1";
    return user;
  }
};

Result<std::unique_ptr<UserProcess>> start(std::size_t lanes = 2, std::chrono::milliseconds timeout = 60s) {
  return UserProcess::start(
      lanes, timeout, [] { return Status(); },
      [] { return Result<std::unique_ptr<UserSource>>(std::make_unique<Far>()); });
}

TEST(UserProcess, WhatIsSaidThereIsSaidHere) {
  auto process = start().value();
  auto ann = user_of(process->find({"ann", "example.org"}));
  ASSERT_TRUE(ann);
  EXPECT_EQ(ann->name + " " + ann->home + " " + ann->maildir + " " + ann->agent,
            "ann@example.org /srv/mail /srv/mail/Maildir lda");
  EXPECT_TRUE(ann->uid == 7 && ann->gid == 5000 && ann->state == UserState::deferred);
  EXPECT_EQ(ann->quota, (QuotaLimit{1000, 10}));
  EXPECT_EQ(ann->detail_folders, FoldersByDetail::create);
  EXPECT_EQ(ann->next_hop, "");
  EXPECT_EQ(user_of(process->find({"far", ""}))->next_hop, "store1");
  EXPECT_FALSE(user_of(process->find({"nobody", "example.org"})));
  EXPECT_EQ(std::get<Alias>(**process->find({"alias", "d"})).address, "ann@d");
  auto broken = process->find({"broken", ""});
  EXPECT_TRUE(!broken && broken.error().code == Errc::conflict &&
              broken.error().message == "not sure of broken");
  EXPECT_NE(process->find({"throw", ""}).error().message.find("unexpectedly"), std::string::npos);
  EXPECT_NE(process->find({"long", ""}).error().message.find("too long"), std::string::npos);
  EXPECT_EQ(process->find({std::string(2000, 'x'), ""}).error().code, Errc::exhausted);
  EXPECT_TRUE(user_of(process->find({"ann", ""}))) << "the process continues";
  EXPECT_NE(user_of(process->find({"pid", ""}))->name, std::to_string(::getpid()));
}

TEST(UserProcess, ManyAskAtOnce) {
  auto process = start(3).value();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        std::string name = std::to_string(t) + "-" + std::to_string(i);
        auto user = user_of(process->find({i % 10 == 0 ? "slow" : name, "d"}));
        good += user && user->name == (i % 10 == 0 ? "slow@d" : name + "@d");
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(good, 360);
}

TEST(UserProcess, ItsEndIsAnErrorAndNeverNobody) {
  auto process = start(2).value();
  pollfd wait{process->lifeline(), 0, 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0);
  for (int i = 0; i < 5; ++i) {
    auto found = process->find({i == 0 ? "ends" : "ann", ""});
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Errc::unavailable);
    EXPECT_NE(found.error().message.find("is gone"), std::string::npos);
  }
  EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
  EXPECT_TRUE(wait.revents & POLLHUP);
}

// The process is stopped and answers nothing until SIGCONT. On a slow machine, look-ups may also fail before
// the stop, and are repeated.
TEST(UserProcess, OneThatHangsIsGivenUpAndServesAgainLater) {
  auto process = start(2, 50ms).value();
  auto find = [&](const char* name) {
    FindResult found = process->find({name, ""});
    while (!found) found = process->find({name, ""});
    return user_of(found)->name;
  };
  pid_t pid = std::stoi(find("pid"));
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(pid, nullptr, WUNTRACED), pid);
  std::string said;
  for (int i = 0; i < 4; ++i) {
    auto found = process->find({"ann", ""});
    ASSERT_TRUE(!found && found.error().code == Errc::timeout);
    said += found.error().message + "\n";
  }
  EXPECT_NE(said.find("has not answered in time"), std::string::npos) << said;
  EXPECT_NE(said.find("is busy"), std::string::npos) << said;
  pollfd wait{process->lifeline(), 0, 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0) << "its lanes are not lost";
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  EXPECT_EQ(find("bob"), "bob") << "not a late answer";
  EXPECT_EQ(find("eve"), "eve") << "not on the other lane either";
}

TEST(UserProcess, ItEndsWithWhoAsks) {
  auto process = start().value();
  pid_t pid = std::stoi(user_of(process->find({"pid", ""}))->name);
  process.reset();
  // The process is this process's child: either already reaped, or reaped here.
  int status = 0;
  pid_t waited;
  while ((waited = ::waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  EXPECT_TRUE(waited < 0 || status == 0) << status;
}

TEST(UserProcess, AStartThatFailsSaysWhy) {
  auto refused = UserProcess::start(
      1, 60s, [] { return Status(fail(Errc::denied, "no such user")); },
      [] { return Result<std::unique_ptr<UserSource>>(std::make_unique<Far>()); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no such user");
  refused = UserProcess::start(
      1, 60s, [] { return Status(); },
      [] { return Result<std::unique_ptr<UserSource>>(fail(Errc::invalid, "no such column")); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no such column");
  refused = UserProcess::start(
      1, 60s, []() -> Status { ::_exit(1); },
      [] { return Result<std::unique_ptr<UserSource>>(std::make_unique<Far>()); });
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("before it was ready"), std::string::npos);
}

TEST(UserWire, EveryPrefixAndEveryChangeIsReadSafely) {
  User user = user_named("ann");
  user.maildir = "/srv/m";
  for (const FindResult& found :
       {FindResult(std::nullopt), FindResult(UserEntry(user)), FindResult(UserEntry(Alias{"a@b"})),
        FindResult(std::unexpected(Error{Errc::unavailable, "away", 0}))}) {
    auto packet = encode_found(found);
    ASSERT_TRUE(decode_found(packet));
    for (std::size_t n = 0; n < packet.size(); ++n)
      EXPECT_FALSE(decode_found(ByteSpan(packet).first(n))) << n;
    for (std::size_t i = 0; i < packet.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        auto changed = packet;
        changed[i] ^= static_cast<std::byte>(1 << bit);
        (void)decode_found(changed);
      }
    packet.push_back(std::byte{0});
    EXPECT_FALSE(decode_found(packet));
  }
  // No user may have this uid.
  user.uid = 0;
  EXPECT_FALSE(decode_found(encode_found(UserEntry(user))));
  user.uid = 1, user.home = "/srv/../etc";
  EXPECT_FALSE(decode_found(encode_found(UserEntry(user))));
  auto key = encode_key({"a", "b"}).value();
  EXPECT_EQ(decode_key(key)->address(), "a@b");
  for (std::size_t n = 0; n < key.size(); ++n) EXPECT_FALSE(decode_key(ByteSpan(key).first(n)));
}

}  // namespace
}  // namespace twinloft::lmtpd
