// The device over the FUSE file, stopped at inconvenient times. Needs root, FUSE and loop devices.
#include "twinloft/spool-repl/export/device_export.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "manual_target.h"
#include "twinloft/spool-repl/io/uring_loop.h"

extern "C" void fuse_log(int level, const char* format,
                         ...);  // libfuse's own log function

namespace twinloft::repl::exports {
namespace {

struct DeviceExportTest : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0 || ::access("/dev/fuse", R_OK | W_OK) != 0 ||
        ::access("/dev/loop-control", R_OK | W_OK) != 0)
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
    options.look_every = std::chrono::milliseconds(20);
    options.tell = [this](std::string text, bool) { events.push_back(std::move(text)); };
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
  std::vector<LoopIdentity> loops() const { return loops_of(where + "/volume"); }
  std::string linked() const {
    std::error_code error;
    return std::filesystem::read_symlink(where + "/device", error);
  }

  std::string where;
  OsClock clock;
  // Writes to `broken` fail. Every other request succeeds at once, flushes too.
  struct Target : ManualTarget {
    Target() : ManualTarget(16u << 20, true) {}
    void submit(ports::IoRequest& r) override {
      bool hit = r.op == ports::IoOp::write && broken && r.offset <= *broken && *broken < r.offset + r.length;
      if (!hit) return ManualTarget::submit(r);
      ++failed;
      complete(r, EIO);
    }
    std::optional<std::uint64_t> broken;
    unsigned failed = 0;
  } target;
  std::unique_ptr<io::UringLoop> loop;
  std::unique_ptr<SideThread> side;
  std::unique_ptr<DeviceExport> device;
  std::optional<Result<std::string>> ready;
  std::vector<std::string> events;
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

// A device that is held open is detached only at its close. stop() waits for that, but abort() does not.
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
  device->abort({});
  held.reset();
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told) << told->error().message;
  EXPECT_TRUE(loops().empty());
}

TEST_F(DeviceExportTest, AbortWhileItIsAttachedLeavesNothing) {
  ASSERT_TRUE(start());
  device->abort({});
  run_until([&] { return ready.has_value(); });
  EXPECT_FALSE(*ready);
  EXPECT_TRUE(loops().empty());
}

// Export, side thread and loop are destroyed before the answer arrives.
TEST_F(DeviceExportTest, ADeviceThatNobodyTakesIsGivenBack) {
  ASSERT_TRUE(start());
  device->abort({});
  device.reset();
  side.reset();
  loop.reset();
  EXPECT_FALSE(ready.has_value());
  EXPECT_TRUE(loops().empty());
}

// A write larger than a FUSE request fails in part, and the loop driver may acknowledge all of it (Linux 6.18
// does). No flush may report it as durable, now or later, although the target's own flushes succeed.
TEST_F(DeviceExportTest, AWriteThatFailsInPartIsNeverFlushed) {
  ASSERT_TRUE(start());
  run_until([&] { return ready.has_value(); });
  ASSERT_TRUE(*ready) << ready->error().message;
  constexpr std::size_t size = 8u << 20;
  target.broken = size - 4096;
  std::atomic<bool> done = false;
  int flushed = 0, flushed_again = 0;
  std::thread client([&] {
    Fd fd(::open((*ready)->c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
    void* memory = nullptr;
    EXPECT_EQ(::posix_memalign(&memory, 4096, size), 0);
    std::memset(memory, 'x', size);
    (void)!::pwrite(fd.get(), memory, size, 0);  // whether the kernel reports the failure or not
    flushed = ::fsync(fd.get()) == 0 ? 0 : errno;
    fd.reset();
    target.broken.reset();
    Fd later(::open((*ready)->c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
    EXPECT_EQ(::pwrite(later.get(), memory, 4096, 0), 4096);
    flushed_again = ::fsync(later.get()) == 0 ? 0 : errno;
    std::free(memory);
    done = true;
  });
  run_until([&] { return done.load(); });
  client.join();
  EXPECT_GT(target.failed, 0u);
  EXPECT_EQ(flushed, EIO);
  EXPECT_EQ(flushed_again, EIO) << "an error was forgotten";
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told) << told->error().message;
}

// libfuse's messages go to the log. Writes to standard error would wait for its reader.
TEST_F(DeviceExportTest, LibfuseWritesNothingByItself) {
  ASSERT_TRUE(start());
  run_until([&] { return ready.has_value(); });
  testing::internal::CaptureStderr();
  fuse_log(3, "fuse: %s\n", "something is wrong");  // FUSE_LOG_ERR
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "level=error prog=twinloft msg=\"fuse: something is wrong\"\n");
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
}

// For example a script's `losetup -D`. Then another program's file gets the device number.
TEST_F(DeviceExportTest, DetachedByAnotherProgramItIsAttachedAgainAndForeignDevicesAreLeftAlone) {
  ASSERT_TRUE(start());
  run_until([&] { return ready.has_value(); });
  ASSERT_TRUE(*ready) << ready->error().message;
  LoopIdentity first = loops().at(0);
  EXPECT_EQ(linked(), first.device);
  ASSERT_TRUE(detach_loop(first));
  Fd made(::open((where + "/foreign").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(made.get(), 1 << 20), 0);
  auto foreign = attach_loop(where + "/foreign", {.direct_io = false});
  ASSERT_TRUE(foreign) << foreign.error().message;
  run_until([&] { return events.size() >= 2; });
  EXPECT_NE(events[0].find(first.device + " is no longer attached"), std::string::npos) << events[0];
  EXPECT_NE(events[1].find("is attached again"), std::string::npos) << events[1];
  ASSERT_EQ(loops().size(), 1u);
  EXPECT_EQ(linked(), loops()[0].device);
  EXPECT_EQ(device->device(), loops()[0].device);
  EXPECT_EQ(device->trouble(), "");
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told) << told->error().message;
  EXPECT_TRUE(is_attached(*foreign)) << "the stop detached another program's device";
  EXPECT_EQ(linked(), "");
  EXPECT_TRUE(detach_loop(*foreign));
}

// The path leads to the file that is mounted over it.
TEST_F(DeviceExportTest, WhatIsMountedOverTheFileIsLeftAlone) {
  ASSERT_TRUE(start());
  run_until([&] { return ready.has_value(); });
  ASSERT_TRUE(*ready) << ready->error().message;
  std::string file = where + "/volume", other = where + "/other";
  Fd(::open(other.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  int error = -1;
  bool covered = false;
  side->run([&] { error = ::mount(other.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) == 0 ? 0 : errno; },
            [&] { covered = true; });
  run_until([&] { return covered; });
  ASSERT_EQ(error, 0);
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
  ASSERT_FALSE(*told) << "the stop has unmounted another program's mount";
  EXPECT_NE(told->error().message.find("covered by another mount"), std::string::npos)
      << told->error().message;
  ASSERT_EQ(::umount2(file.c_str(), UMOUNT_NOFOLLOW), 0)
      << "the other mount is missing: " << std::strerror(errno);
  run_until([&] { return !device->device().empty(); });  // after a refused stop, the device is served again
  told.reset();
  stop(told);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told) << told->error().message;
}

// A service with mounts of its own has a copy of every mount (systemd's PrivateMounts=, `unshare --mount`).
TEST_F(DeviceExportTest, ACopyOfTheMountEndsToo) {
  ASSERT_TRUE(start());
  run_until([&] { return ready.has_value(); });
  ASSERT_TRUE(*ready) << ready->error().message;
  std::string file = where + "/volume", other = where + "/other";
  Fd(::open(other.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  std::promise<int> copied, seen;
  std::promise<void> stopped;
  std::thread service([&] {
    bool apart = ::unshare(CLONE_NEWNS) == 0 &&
                 ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    copied.set_value(apart ? 0 : errno);
    stopped.get_future().wait();
    struct statx st{};
    seen.set_value(::statx(AT_FDCWD, file.c_str(), AT_STATX_FORCE_SYNC, STATX_SIZE, &st) == 0 ? 0 : errno);
  });
  EXPECT_EQ(copied.get_future().get(), 0);
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told) << told->error().message;
  // Another program takes the path.
  EXPECT_EQ(::mount(other.c_str(), file.c_str(), nullptr, MS_BIND, nullptr), 0) << std::strerror(errno);
  device.reset();
  stopped.set_value();
  auto answer = seen.get_future();
  // The ring lets go of /dev/fuse in a turn.
  run_until([&] { return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  int error = answer.get();  // ECONNABORTED: the request was on its way when the connection ended
  EXPECT_TRUE(error == ENOTCONN || error == ECONNABORTED) << std::strerror(error);
  service.join();
  EXPECT_EQ(::umount2(file.c_str(), UMOUNT_NOFOLLOW), 0)
      << "the other mount is missing: " << std::strerror(errno);
}

// Nothing is attached again under the name of the lost device.
TEST_F(DeviceExportTest, AnEndedConnectionIsToldAndTheStopCleansUp) {
  ASSERT_TRUE(start());
  run_until([&] { return ready.has_value(); });
  ASSERT_TRUE(*ready) << ready->error().message;
  // What an operator does with a FUSE file system that hangs.
  ASSERT_EQ(::umount2((where + "/volume").c_str(), MNT_FORCE | MNT_DETACH), 0) << std::strerror(errno);
  run_until([&] { return !events.empty(); });
  EXPECT_NE(events[0].find("unmounted or aborted by another program"), std::string::npos) << events[0];
  EXPECT_EQ(device->device(), "");
  EXPECT_NE(device->trouble(), "");
  EXPECT_EQ(linked(), "");
  std::optional<Status> told;
  stop(told);
  run_until([&] { return told.has_value(); });
  EXPECT_TRUE(*told) << told->error().message;
  EXPECT_TRUE(loops().empty());
}

}  // namespace
}  // namespace twinloft::repl::exports
