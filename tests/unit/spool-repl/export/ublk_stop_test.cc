// A ublk device that does not start, stops, or is taken away.
#include "ublk_fake.h"

namespace twinloft::repl::ublk {
namespace {

using uapi::Control, uapi::Op;

TEST_F(UblkTest, WithoutTheDriverItSaysWhichModuleToLoad) {
  device = UblkExport::start(*loop, target, *side, {.link = link()}, kernel_driver(link() + "-there-is-none"),
                             [this](Result<std::string> path) { ready = std::move(path); });
  run_until([&] { return ready.has_value(); });
  ASSERT_FALSE(*ready);
  EXPECT_EQ(ready->error().code, Errc::unavailable);
  EXPECT_NE(ready->error().message.find("ublk_drv"), std::string::npos) << ready->error().message;
  EXPECT_FALSE(linked());
  EXPECT_TRUE(stop_and_wait());
}

struct Refusal {
  Control command;
  const char* name;
};
class UblkRefused : public UblkTest, public testing::WithParamInterface<Refusal> {};

TEST_P(UblkRefused, TheReasonIsToldAndNothingIsLeft) {
  driver->refuse[GetParam().command] = ENOMEM;
  start_and_wait();
  ASSERT_TRUE(ready && !*ready);
  EXPECT_NE(ready->error().message.find(GetParam().name), std::string::npos) << ready->error().message;
  EXPECT_EQ(ready->error().sys, ENOMEM);
  EXPECT_FALSE(linked());
  driver->refuse.clear();
  EXPECT_TRUE(stop_and_wait());
  EXPECT_FALSE(driver->exists(0));
}

INSTANTIATE_TEST_SUITE_P(Commands, UblkRefused,
                         testing::Values(Refusal{Control::add_dev, "ADD_DEV"},
                                         Refusal{Control::set_params, "SET_PARAMS"},
                                         Refusal{Control::start_dev, "START_DEV"}),
                         [](const auto& refusal) { return std::string(refusal.param.name); });

TEST_F(UblkTest, WithoutTheRightItSaysSo) {
  driver->refuse[Control::add_dev] = EPERM;
  start_and_wait();
  ASSERT_TRUE(ready && !*ready);
  EXPECT_EQ(ready->error().code, Errc::denied);
  EXPECT_NE(ready->error().message.find("root"), std::string::npos);
}

// The driver gives the same answer for its limit of devices and for a caller without root.
TEST_F(UblkTest, AsManyDevicesAsItAllowsMayBeTheReason) {
  driver->refuse[Control::add_dev] = EACCES;
  start_and_wait();
  ASSERT_TRUE(ready && !*ready);
  EXPECT_NE(ready->error().message.find("root"), std::string::npos);
  EXPECT_NE(ready->error().message.find("ublks_max"), std::string::npos);
}

TEST_F(UblkTest, ADeviceThatIsNotAsAskedForIsRefused) {
  for (auto [queues, granted] : {std::pair<int, int>{1, 0}, {1, depth + 1}, {2, depth}}) {
    driver->grants = uapi::DeviceInfo{};
    driver->grants->queues = static_cast<std::uint16_t>(queues);
    driver->grants->queue_depth = static_cast<std::uint16_t>(granted);
    driver->grants->max_io_bytes = io_bytes;
    start_and_wait();
    ASSERT_TRUE(ready && !*ready);
    EXPECT_TRUE(stop_and_wait());
    EXPECT_FALSE(driver->exists(0));
    device.reset();
  }
}

TEST_F(UblkTest, ADeviceWithoutANodeIsRefused) {
  driver->nodes = false;
  start_and_wait();
  ASSERT_TRUE(ready && !*ready);
  EXPECT_NE(ready->error().message.find("/dev/ublkb0"), std::string::npos);
  EXPECT_TRUE(stop_and_wait());
  EXPECT_FALSE(driver->exists(0));
}

// The start waits until all tags are fetched. If that is impossible, the start fails.
TEST_F(UblkTest, AStartWhoseFetchesAreRefusedEnds) {
  driver->refuse_io = EINVAL;
  start_and_wait();
  ASSERT_TRUE(ready && !*ready);
  EXPECT_EQ(ready->error().sys, EINVAL);
  EXPECT_TRUE(stop_and_wait());
  EXPECT_FALSE(driver->exists(0));
}

TEST_F(UblkTest, AnotherFileInPlaceOfTheLinkIsLeftAlone) {
  std::filesystem::create_directory(link());
  start_and_wait();
  ASSERT_TRUE(ready && !*ready);
  EXPECT_EQ(ready->error().code, Errc::conflict);
  EXPECT_TRUE(stop_and_wait());
  EXPECT_TRUE(std::filesystem::is_directory(link()));
  EXPECT_FALSE(driver->exists(0));
}

TEST_F(UblkTest, StopTakesLinkAndDeviceAway) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  EXPECT_TRUE(stop_and_wait());
  EXPECT_FALSE(linked());
  EXPECT_FALSE(driver->exists(0));
  EXPECT_TRUE(device->device().empty());
}

TEST_F(UblkTest, AMountedDeviceStays) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->with([&] { return driver->claimed_elsewhere = true; });
  Status refused = stop_and_wait();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unavailable);
  EXPECT_TRUE(linked());
  EXPECT_TRUE(driver->is_live(0));
  EXPECT_EQ(io(describe(Op::write, 0, 4096), filled(4096, 1)), 4096) << "the device keeps serving";
  driver->with([&] { return driver->claimed_elsewhere = false; });
  EXPECT_TRUE(stop_and_wait());
  EXPECT_FALSE(driver->exists(0));
}

TEST_F(UblkTest, ADeviceThatAProgramHasOpenStays) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->with([&] { return driver->used_by = "fio (812)"; });
  Status refused = stop_and_wait();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unavailable);
  EXPECT_NE(refused.error().message.find("fio (812)"), std::string::npos);
  EXPECT_TRUE(driver->is_live(0));
  EXPECT_GT(driver->pauses, 0u) << "the stop waits for a program that briefly opens the device";
  driver->with([&] {
    driver->used_by.clear();
    return 0;
  });
  EXPECT_TRUE(stop_and_wait());
}

TEST_F(UblkTest, StopWaitsForRequestsUnderWay) {
  target.immediate = false;
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->request(0, 2, describe(Op::write, 0, 4096), filled(4096, 9));
  run_until([&] { return target.waiting.size() == 1; });
  std::optional<Status> told;
  stop(told);
  settle();
  EXPECT_FALSE(told);
  target.complete_first();
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told);
  EXPECT_EQ(target.bytes[0], std::byte{9});
}

TEST_F(UblkTest, AStopThatTheKernelRefusesLeavesItServing) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->with([&] { return driver->refuse[Control::stop_dev] = EIO; });
  Status refused = stop_and_wait();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("STOP_DEV"), std::string::npos);
  EXPECT_EQ(io(describe(Op::flush, 0, 0)), 0);
  driver->with([&] {
    driver->refuse.clear();
    return 0;
  });
  EXPECT_TRUE(stop_and_wait());
}

// For example, the target is suspended and the process has to end.
TEST_F(UblkTest, AbortFailsWhatWaitsAtOnce) {
  target.immediate = false;
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  for (unsigned tag = 0; tag < 3; ++tag)
    driver->request(0, tag, describe(tag == 0 ? Op::read : Op::write, tag * 4096, 4096),
                    tag == 0 ? ByteSpan{} : filled(4096, 5));
  run_until([&] { return target.waiting.size() == 3; });
  device->abort({});
  for (unsigned tag = 0; tag < 3; ++tag) EXPECT_EQ(driver->result(0, tag).value_or(0), -EIO);
  run_until([&] { return !driver->is_live(0); });
  EXPECT_FALSE(linked());
  EXPECT_EQ(device->in_flight(), 3u) << "the target still uses the requests and their memory";
  while (!target.waiting.empty()) target.complete_first();
  EXPECT_EQ(device->in_flight(), 0u);
  run_until([&] { return !driver->exists(0); });
}

// The kernel writes the next request's data into the memory that it is given. This must not be the memory
// that the target still reads.
TEST_F(UblkTest, AfterAnAbortTheMemoryOfARequestStaysAsItIs) {
  target.immediate = false;
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->request(0, 1, describe(Op::write, 4096, 4096), filled(4096, 5));
  run_until([&] { return target.waiting.size() == 1; });
  auto of_the_request = reinterpret_cast<std::uint64_t>(target.waiting.front()->data);
  EXPECT_EQ(driver->slot(0, 1).addr, of_the_request);
  device->abort({});
  EXPECT_NE(driver->slot(0, 1).addr, of_the_request);
  target.complete_first();
  EXPECT_EQ(target.bytes[4096], std::byte{5});
}

// The thread of a deposed primary has to follow the new primary, even while the kernel waits.
TEST_F(UblkTest, AnAbortDoesNotHoldTheThreadThatAsksForIt) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->with([&] { return driver->hold_stop = true; });
  int gone = 0, ticks = 0;
  device->abort([&] { ++gone; });
  EXPECT_FALSE(linked());
  loop->after(Duration(0), [&] { ++ticks; });
  run_until([&] { return ticks == 1; });
  settle();
  EXPECT_EQ(gone, 0);
  device->abort([&] { gone += 10; });
  driver->with([&] { return driver->hold_stop = false; });
  run_until([&] { return gone == 11; });
  device->abort([&] { gone += 100; });
  run_until([&] { return gone == 111; });
  run_until([&] { return !driver->exists(0); });
}

TEST_F(UblkTest, AbortWhileStopWaitsForTheTarget) {
  target.immediate = false;
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->request(0, 0, describe(Op::flush, 0, 0));
  run_until([&] { return target.waiting.size() == 1; });
  std::optional<Status> told;
  stop(told);
  settle();
  EXPECT_FALSE(told);
  device->abort({});
  EXPECT_EQ(driver->result(0, 0), -EIO);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told);
}

TEST_F(UblkTest, StopBeforeItIsReadyWaitsForThat) {
  start();
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(ready && *ready);
  EXPECT_TRUE(*told);
  EXPECT_FALSE(linked());
  EXPECT_FALSE(driver->exists(0));
}

TEST_F(UblkTest, AbortBeforeItIsReadyLeavesNothing) {
  start();
  device->abort({});
  run_until([&] { return ready.has_value(); });
  EXPECT_FALSE(*ready);
  run_until([&] { return !driver->exists(0); });
  EXPECT_FALSE(linked());
}

TEST_F(UblkTest, AbortWhileTheStartWaitsForFetches) {
  driver->submit_errors = 1'000'000;  // no tag is fetched
  start();
  run_until([&] { return driver->with([&] { return driver->starts_waiting; }) == 1; });
  device->abort({});
  run_until([&] { return ready.has_value(); });
  EXPECT_FALSE(*ready);
  run_until([&] { return !driver->exists(0); });
}

TEST_F(UblkTest, AnExportThatIsDroppedTakesItsDeviceAway) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  device.reset();
  EXPECT_FALSE(linked());
  side.reset();  // finishes its queued work first
  EXPECT_FALSE(driver->exists(0));
}

TEST_F(UblkTest, ADeviceThatSomebodyElseStopsCanBeStopped) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->abort_tags(0);
  settle();
  EXPECT_TRUE(stop_and_wait());
  EXPECT_FALSE(driver->exists(0));
}

// On kernel 6.1, DEL_DEV would wait until the unmount, with the whole driver locked.
TEST_F(UblkTest, AnAbortedDeviceThatIsMountedIsLeftDeadAndRemovedByTheNextExport) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  driver->with([&] { return driver->models.at(0).block_open = true; });
  device->abort({});
  device.reset();
  side.reset();
  EXPECT_TRUE(driver->exists(0));
  EXPECT_FALSE(driver->is_live(0));

  side = std::make_unique<exports::SideThread>(*loop);
  start_and_wait();
  ASSERT_TRUE(ready && *ready) << ready->error().message;
  EXPECT_EQ(**ready, "/dev/ublkb1");
  EXPECT_TRUE(driver->exists(0)) << "still mounted";
  driver->with([&] { return driver->models.at(0).block_open = false; });
  run_until([&] { return !driver->exists(0); });
  EXPECT_TRUE(driver->is_live(1));
}

TEST_F(UblkTest, OnlyDeadDevicesOfTheSameLinkAreRemoved) {
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  auto mark = driver->models.at(0).info.server_flags;
  EXPECT_TRUE(stop_and_wait());
  device.reset();
  auto model = [&](unsigned number, std::uint64_t of, uapi::DeviceState state) {
    auto& m = driver->models[number];
    m.info.dev_id = number;
    m.info.server_flags = of;
    m.info.state = static_cast<std::uint16_t>(state);
  };
  model(0, mark, uapi::DeviceState::dead);
  model(1, mark + 1, uapi::DeviceState::dead);
  model(2, 0, uapi::DeviceState::dead);
  model(3, mark, uapi::DeviceState::live);  // of a process that is ending, or left by mistake
  model(4, mark, uapi::DeviceState::dead);
  driver->models[4].queue_open = true;  // its process has not ended completely
  start_and_wait();
  ASSERT_TRUE(ready && *ready);
  EXPECT_EQ(**ready, "/dev/ublkb0") << "the freed number";
  for (unsigned number = 1; number <= 4; ++number) EXPECT_TRUE(driver->exists(number)) << number;
  EXPECT_TRUE(driver->is_live(3));
}

}  // namespace
}  // namespace twinloft::repl::ublk
