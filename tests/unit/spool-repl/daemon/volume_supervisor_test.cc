// Volumes side by side: a volume that cannot be served reports why, and is served once it can be.
#include "twinloft/spool-repl/daemon/volume_supervisor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>

#include "../../support/temporary_directory.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-state/spool_state.h"

namespace twinloft::repl::daemon {
namespace {

struct VolumeSupervisorTest : testing::Test {
  VolumeSettings settings(const std::string& name) {
    VolumeSettings s;
    s.name = name;
    s.uuid = "5c1a0e7e-0000-4000-8000-00000000c0de";
    s.replica = 1;
    s.size = 8u << 20;
    s.journal_size = 64u << 20;
    s.arena = 64u << 20;
    s.data = where + "/" + name + ".data", s.journal = where + "/" + name + ".journal",
    s.control = where + "/" + name + ".sock", s.state_file = where + "/" + name + ".state";
    return s;
  }
  std::unique_ptr<VolumeSupervisor> start(const VolumeSettings& s) {
    return std::make_unique<VolumeSupervisor>(s, ProcessParts(), [this] {
      std::lock_guard lock(mutex);
      changed.notify_all();
    });
  }
  template <class S>
  void await(const VolumeSupervisor& v) {
    std::unique_lock lock(mutex);
    while (!std::holds_alternative<S>(v.state())) changed.wait_for(lock, std::chrono::milliseconds(100));
  }
  // Waits until the state file says this. Returns its reason.
  static std::string await_told(const VolumeSettings& s, std::string_view state) {
    for (;; ::usleep(1000)) {
      auto told = spool_state::read_state(s.state_file);
      EXPECT_TRUE(told) << told.error().message;
      if (!told) return {};
      if (*told && (*told)->state == state && (*told)->uuid == s.uuid) return (*told)->reason;
    }
  }
  Result<std::string> ask(const VolumeSettings& s, const std::string& what) {
    return control::ask(s.control, what, std::chrono::seconds(20));
  }

  TemporaryDirectory directory;
  const std::string& where = directory.path();
  std::mutex mutex;
  std::condition_variable changed;
};

TEST_F(VolumeSupervisorTest, OneWithoutItsFilesKeepsNoOtherOut) {
  VolumeSettings good = settings("good"), bad = settings("bad");
  ASSERT_TRUE(create_volume(good));
  auto one = start(bad), other = start(good);
  await<VolumeSupervisor::Failed>(*one);
  await<VolumeSupervisor::Serving>(*other);
  EXPECT_TRUE(ask(good, "status")->starts_with("good  Secondary"));
  // Every command reports why the volume is not served, and what to do.
  auto asked = [&](const std::string& what) { return ask(bad, what); };
  std::string text = asked("status").value();
  EXPECT_NE(text.find("bad  FAILED: not served: " + bad.journal), text.npos) << text;
  EXPECT_NE(text.find("systemctl reload spool-repl"), text.npos) << text;
  EXPECT_NE(asked("status json")->find("\"state\":\"failed\""), std::string::npos);
  auto promote = asked("promote");
  ASSERT_FALSE(promote);
  EXPECT_EQ(promote.error().code, Errc::unavailable);
  // After the repair, a reload is enough.
  ASSERT_TRUE(create_volume(bad));
  one->reload(bad, {});
  await<VolumeSupervisor::Serving>(*one);
  EXPECT_TRUE(ask(bad, "status")->starts_with("bad  Secondary"));
  for (auto* v : {one.get(), other.get()}) v->request_stop(false);
  await<VolumeSupervisor::Ended>(*one);
  await<VolumeSupervisor::Ended>(*other);
}

TEST_F(VolumeSupervisorTest, TheStateFileFollowsAVolume) {
  VolumeSettings s = settings("mail");
  auto volume = start(s);
  await<VolumeSupervisor::Failed>(*volume);
  EXPECT_TRUE(await_told(s, "failed").starts_with("not served: " + s.journal));
  ASSERT_TRUE(create_volume(s));
  volume->reload(s, {});
  await<VolumeSupervisor::Serving>(*volume);
  EXPECT_EQ(await_told(s, "no-primary"), "");
  ASSERT_TRUE(ask(s, "promote"));
  EXPECT_EQ(await_told(s, "ok"), "");
  EXPECT_EQ((*spool_state::read_state(s.state_file).value()).role, "primary");
  volume->request_stop(false);
  await<VolumeSupervisor::Ended>(*volume);
  EXPECT_FALSE(std::filesystem::exists(s.state_file));
}

// A failure at run time ends that volume only, and the end is reported.
TEST_F(VolumeSupervisorTest, AFailureAtRunTimeEndsOneVolumeAlone) {
  VolumeSettings good = settings("good"), bad = settings("bad");
  bad.role = core::Role::primary;
  bad.nbd_listen = "unix:" + where + "/missing/nbd";
  ASSERT_TRUE(create_volume(good));
  ASSERT_TRUE(create_volume(bad));
  auto other = start(good), one = start(bad);
  await<VolumeSupervisor::Failed>(*one);
  await<VolumeSupervisor::Serving>(*other);
  EXPECT_NE(std::get<VolumeSupervisor::Failed>(one->state()).why.message.find("missing/nbd"),
            std::string::npos);
  std::filesystem::create_directory(where + "/missing");
  one->reload(bad, {});
  await<VolumeSupervisor::Serving>(*one);
  for (auto* v : {one.get(), other.get()}) v->request_stop(false);
  await<VolumeSupervisor::Ended>(*one);
  await<VolumeSupervisor::Ended>(*other);
}

// While another process has the files, each attempt takes seconds. Meanwhile, no answer may say that
// spool-repl does not run.
TEST_F(VolumeSupervisorTest, ItAnswersWhileItIsTriedAgain) {
  VolumeSettings good = settings("good"), same = good;
  same.name = "same", same.control = where + "/same.sock";
  ASSERT_TRUE(create_volume(good));
  auto owner = start(good);
  await<VolumeSupervisor::Serving>(*owner);
  auto other = start(same);
  await<VolumeSupervisor::Failed>(*other);
  other->reload(same, {});
  for (int i = 0; i < 400; ++i) {
    auto text = ask(same, "status");
    ASSERT_TRUE(text) << i << ": " << text.error().message;
    ASSERT_TRUE(text->starts_with("same  FAILED: not served: ")) << *text;
    ::usleep(10'000);
  }
  owner->request_stop(false);
  await<VolumeSupervisor::Ended>(*owner);
  other->reload(same, {});
  await<VolumeSupervisor::Serving>(*other);
  other->request_stop(false);
  await<VolumeSupervisor::Ended>(*other);
  EXPECT_FALSE(std::get<VolumeSupervisor::Ended>(other->state()).failed);
}

// A start may have to read a whole journal.
TEST_F(VolumeSupervisorTest, ALongStartSaysThatItIsOne) {
  VolumeSettings good = settings("good"), same = good;
  same.name = "same", same.control = where + "/same.sock";
  ASSERT_TRUE(create_volume(good));
  auto owner = start(good);
  await<VolumeSupervisor::Serving>(*owner);
  VolumeSupervisor other(same, {}, [] {}, std::chrono::milliseconds(20));
  auto text = ask(same, "status");
  while (!text && std::holds_alternative<VolumeSupervisor::Starting>(other.state()))
    text = ask(same, "status");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_TRUE(text->starts_with("same  STARTING: not served yet")) << *text;
  auto json = ask(same, "status json");
  EXPECT_TRUE(!json || json->find("\"state\":\"starting\"") != json->npos ||
              json->find("\"state\":\"failed\"") != json->npos);
  other.request_stop(false);
  await<VolumeSupervisor::Ended>(other);
  owner->request_stop(false);
  await<VolumeSupervisor::Ended>(*owner);
}

// A killed process has left its link, and the volume cannot be started. By now, the link may lead to another
// program's device.
TEST_F(VolumeSupervisorTest, AStaleLinkGoesWhereTheVolumeCannotBeStarted) {
  VolumeSettings bad = settings("bad");
  bad.fuse_file = where + "/bad.volume", bad.fuse_device = where + "/bad.device";
  std::filesystem::create_symlink("/dev/loop0", bad.fuse_device);
  auto one = start(bad);
  await<VolumeSupervisor::Failed>(*one);
  EXPECT_FALSE(std::filesystem::is_symlink(bad.fuse_device));
  one->request_stop(false);
  await<VolumeSupervisor::Ended>(*one);
}

TEST_F(VolumeSupervisorTest, AStopEndsOneThatIsNotServed) {
  auto one = start(settings("none"));
  await<VolumeSupervisor::Failed>(*one);
  one->request_stop(false);
  await<VolumeSupervisor::Ended>(*one);
}

TEST_F(VolumeSupervisorTest, WhatTakesEffectWithoutARestart) {
  VolumeSettings a = settings("v"), b = a;
  a.peers = {PeerSettings{2, {"10.0.0.2:7710"}}};
  b.peers = a.peers;
  b.peers[0].addresses = {"10.0.0.9:7710", "10.0.1.9:7710"};
  b.peers[0].paths = stream::PathUse::together;
  b.secret_file = "/elsewhere";
  b.tls = {"/certificate", "/key", "/authority"};
  b.accept_old_release = true;
  EXPECT_TRUE(keys_for_a_restart(a, b).empty());
  b.nbd_tls = b.tls;
  b.nbd_name = "other";
  EXPECT_EQ(keys_for_a_restart(a, b), std::vector<std::string>{"nbd"});
  a.nbd_tls = {"/earlier", "/key", "/authority"}, a.nbd_name = b.nbd_name;
  EXPECT_TRUE(keys_for_a_restart(a, b).empty()) << "renewed";
  b.arena *= 2, b.peers[0].protocol = core::Protocol::A, b.arbiter.kind = arbiter::Kind::etcd,
                b.fuse_device = "/x";
  EXPECT_EQ(keys_for_a_restart(a, b), (std::vector<std::string>{"arena", "fuse", "arbiter", "peer"}));
  b = a;
  b.spill = "/x", b.peers[0].buffer.emplace();
  EXPECT_EQ(keys_for_a_restart(a, b), (std::vector<std::string>{"spill", "peer"}));
}

}  // namespace
}  // namespace twinloft::repl::daemon
