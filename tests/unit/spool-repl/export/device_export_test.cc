// The device over the FUSE file when it is stopped at awkward moments. Needs root, FUSE and loop devices.
#include "twinloft/spool-repl/export/device_export.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "manual_target.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::exports {
namespace {

struct DeviceExportTest : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0 || ::access("/dev/fuse", R_OK | W_OK) != 0 || ::access("/dev/loop-control", R_OK | W_OK) != 0)
      FAIL() << "needs root, /dev/fuse and loop devices";
    const char* tmp = std::getenv("TMPDIR");
    where = std::string(tmp ? tmp : "/tmp") + "/tl-device-XXXXXX";
    ASSERT_NE(::mkdtemp(where.data()), nullptr);
    loop = io::UringLoop::create(clock, {.entries = 64}).value();
    side = std::make_unique<SideThread>(*loop);
  }
  void TearDown() override {
    device.reset();
    side.reset();
    loop.reset();
    if (!where.empty()) std::filesystem::remove_all(where);
  }
  Status start() {
    DeviceOptions options;
    options.fuse.mount_point = where + "/volume";
    options.link = where + "/device";
    TL_TRY_ASSIGN(device, DeviceExport::start(*loop, target, *side, std::move(options),
                                              [this](Result<std::string> path) { ready = std::move(path); }));
    return {};
  }
  void stop(std::optional<Status>& told) {
    device->stop([&told](Status s) { told = std::move(s); });
  }
  template <class Predicate>
  void run_until(Predicate done) {
    while (!done()) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  }
  std::vector<std::string> loops() const { return loops_of(where + "/volume"); }

  std::string where;
  OsClock clock;
  ManualTarget target{8u << 20, true};
  std::unique_ptr<io::UringLoop> loop;
  std::unique_ptr<SideThread> side;
  std::unique_ptr<DeviceExport> device;
  std::optional<Result<std::string>> ready;
};

TEST_F(DeviceExportTest, StopBeforeItIsReadyWaitsForThat) {
  ASSERT_TRUE(start());
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(ready && *ready);
  EXPECT_TRUE(*told) << told->error().message;
  EXPECT_TRUE(loops().empty());
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(where + "/device")));
}

// A device that is held open detaches only at its close: stop() waits for that, and a second signal does not.
TEST_F(DeviceExportTest, AbortWhileStopWaits) {
  ASSERT_TRUE(start());
  run_until([&] { return ready.has_value(); });
  ASSERT_TRUE(*ready) << ready->error().message;
  Fd held(::open((*ready)->c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(held);
  std::optional<Status> told;
  stop(told);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop->turn(std::chrono::milliseconds(10)));
  EXPECT_FALSE(told.has_value());
  device->abort();
  held.reset();
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told) << told->error().message;
  EXPECT_TRUE(loops().empty());
}

TEST_F(DeviceExportTest, AbortWhileItIsAttachedLeavesNothing) {
  ASSERT_TRUE(start());
  device->abort();
  run_until([&] { return ready.has_value(); });
  EXPECT_FALSE(*ready);
  EXPECT_TRUE(loops().empty());
}

// Export, side thread and loop go while the answer is under way.
TEST_F(DeviceExportTest, ADeviceThatNobodyTakesIsGivenBack) {
  ASSERT_TRUE(start());
  device->abort();
  device.reset();
  side.reset();
  loop.reset();
  EXPECT_FALSE(ready.has_value());
  EXPECT_TRUE(loops().empty());
}

}  // namespace
}  // namespace twinloft::repl::exports
