// The core of a volume without peers, on files and the real event loop. The test plays the front ends.
#include "performer.h"

#include <gtest/gtest.h>

#include "fake_front_ends.h"
#include "volume_on_files.h"

namespace twinloft::repl::daemon {
namespace {

struct PerformerTest : testing::Test, VolumeOnFiles, FrontEndLife::Volume, CommandDesk::Volume {
  PerformerTest() {
    Storage storage = open_storage(s).value();
    volume = OpenedVolume::open(s, std::move(storage), random, [](std::string, std::string, bool) {}).value();
    auto step = [this](core::Event e) { volume->core->step(std::move(e)); };
    requests = std::make_unique<ClientRequests>(*loop, s.size, step);
    auto ignore = [](ReplicaId, const std::string&) {};
    links = Links::start(s, volume->superblock, {*loop, random, clock}, step, ignore, ignore).value();
    performer = std::make_unique<Performer>(
        Performer::Parts{s, *loop, *volume, *links, *requests, front_ends, desk, reporter, nullptr});
    loop->set_turn_hook([this] {
      volume->core->tick(loop->now());
      performer->perform_all();
    });
  }
  ~PerformerTest() override {
    performer->end_archiver();
    while (performer->disk().in_flight() > 0) EXPECT_TRUE(loop->turn(std::chrono::milliseconds(10)));
    loop->set_turn_hook(nullptr);
  }

  std::unique_ptr<FrontEnds> make_front_ends() override {
    made.push_back(std::make_shared<Made>());
    return std::make_unique<FakeFrontEnds>(made.back());
  }
  bool is_draining() override { return false; }
  void stand_down() override {}
  void ask_core_to_demote(FrontEndLife::Reply) override {}
  void device_is_taken_away() override {}
  void fail_volume(const std::string& why, bool) override { ADD_FAILURE() << why; }
  void end() override {}
  void gives_back(const std::string&) override {}
  bool is_suspended() override { return false; }
  bool is_stopping() override { return false; }
  std::string show_status(command::Status::Form) override { return ""; }
  Result<std::string> show_events(const std::string&) override { return ""; }
  void command_core(core::Event command) override { volume->core->step(std::move(command)); }
  void demote(CommandDesk::Reply) override {}
  Status set_peers_wanted(bool) override { return {}; }

  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  }
  void command(const std::string& line) {
    desk.on_line(line, [this](Result<std::string> r) { answer = r ? *r : "error: " + r.error().message; });
  }
  void promote() {
    command("promote");
    run_until([&] { return !made.empty(); });
  }
  // Submits a request, and waits until it completes.
  int perform(ports::IoOp op, std::span<std::byte> data) {
    bool done = false;
    ports::IoRequest r;
    r.op = op;
    r.offset = 8192;
    r.length = static_cast<std::uint32_t>(data.size());
    r.data = data.data();
    r.owner = &done;
    r.done = [](ports::IoRequest& request) { *static_cast<bool*>(request.owner) = true; };
    requests->submit(r);
    run_until([&] { return done; });
    return r.error;
  }

  OsClock clock;
  OsRandom random;
  std::unique_ptr<OpenedVolume> volume;
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock).value();
  Reporter reporter{s, clock};
  FrontEndLife front_ends{*loop, *this};
  CommandDesk desk{*this};
  std::unique_ptr<ClientRequests> requests;
  std::unique_ptr<Links> links;
  std::unique_ptr<Performer> performer;
  std::vector<std::shared_ptr<Made>> made;
  std::string answer;
};

TEST_F(PerformerTest, APromotionIsAnsweredWhenItsDeviceIsThere) {
  promote();
  EXPECT_EQ(volume->core->status().role, core::Role::primary);
  EXPECT_TRUE(front_ends.is_attaching());
  EXPECT_EQ(answer, "");
  made[0]->started({});
  EXPECT_NE(answer, "");
  EXPECT_EQ(answer.find("error"), std::string::npos) << answer;
  EXPECT_EQ(answer.back(), '\n');
  EXPECT_NE(reporter.events().list(0, false).find("replica 1 is Primary"), std::string::npos);
}

TEST_F(PerformerTest, ACommandThatTheCoreRefuses) {
  command("discard");
  run_until([&] { return !answer.empty(); });
  EXPECT_EQ(answer.find("error: "), 0u) << answer;
  EXPECT_FALSE(desk.waits_for_core());
}

TEST_F(PerformerTest, RequestsAreAnsweredFromTheDisks) {
  promote();
  made[0]->started({});
  std::vector<std::byte> data(block_size), back(block_size);
  random.fill(data);
  EXPECT_EQ(perform(ports::IoOp::write, data), 0);
  EXPECT_EQ(perform(ports::IoOp::flush, {}), 0);
  EXPECT_EQ(perform(ports::IoOp::read, back), 0);
  EXPECT_EQ(back, data);
  EXPECT_EQ(requests->oldest_wait(), Duration(0));
  EXPECT_FALSE(performer->disk_has_failed());
  EXPECT_EQ(performer->arbiter(), nullptr);
}

}  // namespace
}  // namespace twinloft::repl::daemon
