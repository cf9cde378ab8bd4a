// The process that attaches the loop device: what it has of the server, and what a kill of either one leaves.
// Needs root, FUSE and loop devices.
#include "twinloft/spool-repl/export/loop_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "manual_target.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/process.h"
#include "twinloft/spool-repl/export/device_export.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl::exports {
namespace {

constexpr std::chrono::milliseconds turn_time{10}, pause{5};
constexpr int waits_before_turn = 200;

// A served file. Its requests are answered in turn() alone.
struct AttachedFile {
  explicit AttachedFile(const std::string& where) {
    DeviceOptions options;
    options.fuse.mount_point = where + "/volume";
    options.link = where + "/device";
    device = DeviceExport::start(*loop, target, *side, std::move(options), [this](Result<std::string> path) {
               ready = std::move(path);
             }).value();
  }
  void turn(std::chrono::milliseconds time) { ASSERT_TRUE(loop->turn(time)); }

  OsClock clock;
  ManualTarget target{16u << 20, true};
  std::unique_ptr<io::UringLoop> loop = io::UringLoop::create(clock, {.entries = 64}).value();
  std::unique_ptr<SideThread> side = std::make_unique<SideThread>(*loop);
  std::unique_ptr<DeviceExport> device;
  std::optional<Result<std::string>> ready;
};

struct LoopProcessTest : testing::Test {
  void SetUp() override {
    ASSERT_EQ(::geteuid(), 0u) << "needs root, /dev/fuse and loop devices";
    const char* tmp = std::getenv("TMPDIR");
    where = std::string(tmp ? tmp : "/tmp") + "/tl-loop-process-XXXXXX";
    ASSERT_NE(::mkdtemp(where.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(where); }
  void stop(AttachedFile& file) {
    std::optional<Status> told;
    file.device->stop([&](Status s) { told = std::move(s); });
    while (!told) file.turn(turn_time);
    EXPECT_TRUE(*told) << told->error().message;
    EXPECT_TRUE(loops_of(where + "/volume").empty());
  }

  std::string where;
};

// The child of this process that has begun the command.
pid_t await_process() {
  for (;; std::this_thread::sleep_for(pause))
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream children(task.path() / "children");
      for (pid_t pid = 0; children >> pid;) {
        std::ifstream words("/proc/" + std::to_string(pid) + "/cmdline");
        std::string all{std::istreambuf_iterator<char>(words), {}};
        if (all.find("loop-device") != std::string::npos && all.find("attach") != std::string::npos)
          return pid;
      }
    }
}

// Without stdin, stdout and stderr, and without what is closed while this function reads.
std::set<std::string> descriptors_of(const std::string& process) {
  std::set<std::string> all;
  for (const auto& fd : std::filesystem::directory_iterator(process + "/fd")) {
    std::error_code gone;
    std::string of = std::filesystem::read_symlink(fd.path(), gone);
    if (!gone && std::stoi(fd.path().filename()) > 2) all.insert(of);
  }
  return all;
}

// The kernel shows the arguments of a new program before its environment.
std::string await_text(const std::string& path) {
  for (;; std::this_thread::sleep_for(pause)) {
    std::ifstream file(path);
    std::string all{std::istreambuf_iterator<char>(file), {}};
    if (!all.empty()) return all;
  }
}

TEST_F(LoopProcessTest, ItHasNothingOfTheServer) {
  ::setenv("TWINLOFT_SECRET", "secret", 1);
  AttachedFile file(where);
  std::string process = "/proc/" + std::to_string(await_process());
  // The process stays in the wait for the file. Until then, the dynamic linker opens files of its own.
  auto of_server = descriptors_of("/proc/self");
  ASSERT_TRUE(of_server.contains("anon_inode:[io_uring]"));
  ASSERT_TRUE(of_server.contains("/dev/fuse"));
  for (const auto& of : descriptors_of(process))
    EXPECT_TRUE(of.starts_with("/dev/loop") || !of_server.contains(of)) << of;
  for (const char* name : {"/maps", "/environ"}) {
    std::string all = await_text(process + name);
    EXPECT_EQ(all.find("io_uring"), std::string::npos) << all;
    EXPECT_EQ(all.find("TWINLOFT_SECRET"), std::string::npos) << all;
  }
  while (!file.ready) file.turn(turn_time);
  EXPECT_TRUE(*file.ready) << file.ready->error().message;
  stop(file);
}

TEST_F(LoopProcessTest, IfItIsKilledTheDeviceIsRefusedAndNothingStaysAttached) {
  AttachedFile file(where);
  ASSERT_EQ(::kill(await_process(), SIGKILL), 0);
  while (!file.ready) file.turn(turn_time);
  ASSERT_FALSE(*file.ready);
  EXPECT_EQ(file.ready->error().code, Errc::unavailable);
  EXPECT_NE(file.ready->error().message.find("signal 9"), std::string::npos) << file.ready->error().message;
  stop(file);
}

// Takes one request from /dev/fuse, and does not answer it. Returns whether there was one.
bool take_request(std::vector<char>& into) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) != "/dev/fuse") continue;
    return ::read(std::stoi(entry.path().filename()), into.data(), into.size()) > 0;
  }
  return false;
}

// The kernel waits, unkillable, only for a request that the server has taken.
[[noreturn]] void serve_until_a_request_is_taken(const std::string& where, int told) {
  AttachedFile file(where);
  std::vector<char> request(2u << 20);
  // The first request, of the mount. Then the descriptor is polled again.
  (void)file.loop->turn(std::chrono::milliseconds(0));
  (void)file.loop->turn(std::chrono::milliseconds(0));
  // If the process has made all its requests meanwhile, only a turn shows its end.
  for (int i = 1; !take_request(request) && !file.ready; ++i) {
    std::this_thread::sleep_for(pause);
    if (i % waits_before_turn == 0) (void)file.loop->turn(std::chrono::milliseconds(0));
  }
  (void)!::write(told, "", 1);
  for (;;) ::pause();
}

bool killed_server_ends(const std::string& where) {
  auto pipe = make_pipe().value();
  pid_t server = ::fork();
  if (server == 0) serve_until_a_request_is_taken(where, pipe.write.get());
  pipe.write.reset();
  char byte = 0;
  EXPECT_EQ(::read(pipe.read.get(), &byte, 1), 1);
  EXPECT_EQ(::kill(server, SIGKILL), 0);
  pid_t ended = 0;
  for (int i = 0; i < 2000 && ended == 0; ++i) {
    ended = ::waitpid(server, nullptr, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(pause);
  }
  const auto left = loops_of(where + "/volume");  // after the unmount the kernel shows another path
  // Ends the connection, and so a process that waits for itself.
  ::umount2((where + "/volume").c_str(), MNT_FORCE | MNT_DETACH);
  if (ended != server) ::waitpid(server, nullptr, 0);
  for (const auto& loop : left) abandon_loop(loop);
  return ended == server;
}

// With a thread in place of the process, every second kill or so hangs.
TEST_F(LoopProcessTest, AServerThatIsKilledWhileTheDeviceIsAttachedEnds) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(killed_server_ends(where)) << "a killed server waits for itself";
}

}  // namespace
}  // namespace twinloft::repl::exports

int main(int argc, char** argv) {
  twinloft::repl::exports::serve_as_loop_process(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
