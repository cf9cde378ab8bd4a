#include "twinloft/spool-repl/export/ring_test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ring_kernel.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/durable.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/process.h"
#include "twinloft/base/program.h"
#include "twinloft/spool-repl/export/ring_export.h"

namespace twinloft::repl::fuse {

namespace {

constexpr std::size_t volume_bytes = 4u << 20, piece_bytes = 1u << 20;
constexpr int mount_ms = 2000;
constexpr std::chrono::seconds time_max{4};
constexpr std::chrono::seconds process_time_max{5};
constexpr std::string_view mounted_word = "mounted\n", good_word = "good\n";

// Completes every request at once.
class MemoryTarget final : public ports::BlockTarget {
 public:
  std::uint64_t size_bytes() const override { return volume_bytes; }
  void submit(ports::IoRequest& r) override {
    std::byte* at = bytes_.data() + r.offset;
    if (r.op == ports::IoOp::write) std::memcpy(at, r.data, r.length);
    if (r.op == ports::IoOp::read) std::memcpy(r.data, at, r.length);
    r.error = 0;
    r.done(r);
  }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(volume_bytes);
};

int set(int context, const char* key, const std::string& value) {
  return ::fsconfig(context, FSCONFIG_SET_STRING, key, value.c_str(), 0);
}

// A mount without a path. It ends with its descriptor.
Result<Fd> mount_connection(int connection) {
  Fd context(::fsopen("fuse", FSOPEN_CLOEXEC));
  if (!context || set(context.get(), "source", "twinloft-test") != 0 ||
      set(context.get(), "fd", std::to_string(connection)) != 0 ||
      set(context.get(), "rootmode", "100600") != 0 || set(context.get(), "user_id", "0") != 0 ||
      set(context.get(), "group_id", "0") != 0 ||
      ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail_errno(errno, "a FUSE file system for the test");
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID));
  if (!mount) return fail_errno(errno, "a mount for the test");
  return mount;
}

// Larger pieces than a request may have, so that several requests are in flight.
Status use_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT));
  if (!file) return fail_errno(errno, "the test's file");
  auto* data = static_cast<std::byte*>(std::aligned_alloc(4096, 2 * piece_bytes));
  if (data == nullptr) return fail(Errc::unavailable, "no memory");
  std::byte* found = data + piece_bytes;
  for (std::size_t at = 0; at < volume_bytes; at += piece_bytes) {
    for (std::size_t i = 0; i < piece_bytes; ++i)
      data[i] = static_cast<std::byte>((at + i) * 2654435761u >> 16);
    if (::pwrite(file.get(), data, piece_bytes, static_cast<off_t>(at)) != ssize_t{piece_bytes})
      return fail_errno(errno, "a write to the test's file");
    TL_TRY(sync_durably(file.get()));
    if (::pread(file.get(), found, piece_bytes, static_cast<off_t>(at)) != ssize_t{piece_bytes})
      return fail_errno(errno, "a read of the test's file");
    if (std::memcmp(data, found, piece_bytes) != 0)
      return fail(Errc::corrupt, "the test's file has other data than was written");
  }
  return {};
}

Status use_connection(int connection, int tell) {
  TL_TRY_ASSIGN(Fd mount, mount_connection(connection));
  // With an open connection, this process would keep it alive after the death of its server.
  ::close(connection);
  TL_TRY(write_all(tell, std::as_bytes(std::span(mounted_word))));
  return use_file("/proc/self/fd/" + std::to_string(mount.get()));
}

[[noreturn]] void be_client(int connection, int tell, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  constexpr int own_connection = 3, own_tell = 4, free_number = 10;
  int c = ::fcntl(connection, F_DUPFD, free_number), t = ::fcntl(tell, F_DUPFD, free_number);
  if (c < 0 || t < 0 || ::dup2(c, own_connection) < 0 || ::dup2(t, own_tell) < 0) ::_exit(1);
  if (::close_range(own_tell + 1, ~0u, 0) != 0) ::_exit(1);
  Status used = use_connection(own_connection, own_tell);
  std::string text = used ? std::string(good_word) : used.error().message + "\n";
  (void)write_all(own_tell, std::as_bytes(std::span(text)));
  ::_exit(0);
}

Result<std::string> read_line(int fd, int milliseconds) {
  std::string text;
  while (!text.ends_with('\n')) {
    pollfd ready{fd, POLLIN, 0};
    char c = 0;
    if (::poll(&ready, 1, milliseconds) <= 0) return fail(Errc::unavailable, "no answer in time");
    if (::read(fd, &c, 1) != 1) return fail(Errc::unavailable, "a process of the test has ended");
    text += c;
  }
  return text;
}

std::unexpected<Error> failed_test(std::string_view why) {
  while (why.ends_with('\n')) why.remove_suffix(1);
  return fail(Errc::unavailable, "{}", why);
}

}  // namespace

struct RingTest::State {
  MemoryTarget target;
  std::unique_ptr<RingExport> file;
  Fd told;
};

RingTest::RingTest(std::unique_ptr<State> state) : state_(std::move(state)) {}
RingTest::~RingTest() = default;

Result<std::unique_ptr<RingTest>> RingTest::start(ports::Loop& loop, std::function<void(Status)> done) {
  TL_TRY(ring_is_switched_on());
  Fd connection(::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!connection) return fail_errno(errno, "/dev/fuse");
  TL_TRY_ASSIGN(auto pipe, make_pipe());
  pid_t own = ::getpid(), client = ::fork();
  if (client < 0) return fail_errno(errno, "no process for the test");
  if (client == 0) be_client(connection.get(), pipe.write.get(), own);
  pipe.write.reset();
  auto state = std::make_unique<State>();
  state->told = std::move(pipe.read);
  int told = state->told.get();
  auto mounted = [told]() -> Status {
    TL_TRY_ASSIGN(std::string line, read_line(told, mount_ms));
    return line == mounted_word ? Status() : failed_test(line);
  };
  FuseOptions options;
  options.mount_point = "(test)";
  TL_TRY_ASSIGN(state->file, RingExport::start(loop, state->target, std::move(options),
                                               os_ring_kernel(std::move(connection), std::move(mounted))));
  loop.watch(told, ports::Loop::readable, [told, done](unsigned) {
    auto line = read_line(told, 0);
    done(line && *line == good_word ? Status() : failed_test(line ? *line : line.error().message));
  });
  loop.after(time_max, [done] { done(fail(Errc::unavailable, "no answer in time")); });
  return std::unique_ptr<RingTest>(new RingTest(std::move(state)));
}

// A process that even SIGKILL does not end is left alone: the runner does not wait for it.
Status test_ring_in_process() {
  OsClock clock;
  ProgramRunner runner(clock);
  TL_TRY_ASSIGN(auto ran,
                runner.run({"/proc/self/exe", "fuse-ring-test"}, "", clock.now() + process_time_max));
  return ran.exit_code == 0 && ran.out == good_word ? Status() : failed_test(ran.out);
}

}  // namespace twinloft::repl::fuse
