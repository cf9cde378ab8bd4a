// Serves a RamTarget over NBD and as a block device, for tests/e2e/export/run and for trying the exports by
// hand.
//
//   export_ram --size-mib N [--seed N] [--nbd SOCKET] [--tcp PORT] [--mount FILE --link LINK]
//
// Standard output: "ready nbd=SOCKET tcp=PORT device=/dev/loopN" once everything is served. "cut LOST" after
// each SIGUSR1: a power cut that has lost LOST unflushed blocks. A line of counters at the end. SIGTERM or
// SIGINT: clean end. Exit status: 0 after a clean end, 1 if something could not be served or removed, 2 for
// bad arguments.
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>

#include "ram_target.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/device_export.h"
#include "twinloft/spool-repl/export/loop_process.h"
#include "twinloft/spool-repl/export/nbd_server.h"
#include "twinloft/spool-repl/io/uring_loop.h"

namespace twinloft::repl {
namespace {

struct Arguments {
  std::uint64_t size_mib = 0, seed = 1;
  std::optional<std::uint16_t> tcp;
  std::string nbd, mount, link;
};

template <class T>
bool parse_number(const char* text, T& out) {
  auto [end, error] = std::from_chars(text, text + std::strlen(text), out);
  return error == std::errc{} && *end == '\0';
}

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view key = argv[i];
    const char* value = argv[i + 1];
    bool ok = true;
    if (key == "--size-mib")
      ok = parse_number(value, a.size_mib);
    else if (key == "--seed")
      ok = parse_number(value, a.seed);
    else if (key == "--tcp")
      ok = parse_number(value, a.tcp.emplace());
    else if (key == "--nbd")
      a.nbd = value;
    else if (key == "--mount")
      a.mount = value;
    else if (key == "--link")
      a.link = value;
    else
      ok = false;
    if (!ok) return std::nullopt;
  }
  if (argc % 2 == 0 || a.size_mib == 0) return std::nullopt;
  return a;
}

class Program {
 public:
  Program(io::UringLoop& loop, const Arguments& arguments)
      : loop_(loop),
        arguments_(arguments),
        target_(loop, arguments.size_mib << 20, arguments.seed),
        side_(loop) {}

  Status start() {
    TL_TRY(watch_signals());
    nbd::ServerOptions options;
    options.accepts_name = [](std::string_view name) { return name.empty() || name == "spool"; };
    options.list_names = [] { return std::vector<std::string>{"spool"}; };
    options.owner_flushes = true;
    server_.emplace(loop_, target_, std::move(options));
    loop_.set_turn_hook([this] { server_->flush(); });
    if (!arguments_.nbd.empty()) TL_TRY(server_->listen_unix(arguments_.nbd));
    if (arguments_.tcp) {
      TL_TRY_ASSIGN(port_, server_->listen_tcp("127.0.0.1", *arguments_.tcp));
    }
    if (arguments_.mount.empty()) return say_ready(), Status{};
    exports::DeviceOptions device;
    device.fuse.mount_point = arguments_.mount;
    device.link = arguments_.link;
    TL_TRY_ASSIGN(device_, exports::DeviceExport::start(loop_, target_, side_, std::move(device),
                                                        [this](Result<std::string> ready) {
                                                          if (ready) return say_ready();
                                                          give_up(ready.error());
                                                        }));
    return {};
  }

  int exit_status() const { return exit_status_; }

 private:
  Status watch_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (int s : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, s);
    signals_ = Fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!signals_) return fail_errno(errno, "signalfd");
    loop_.watch(signals_.get(), ports::Loop::readable, [this](unsigned) {
      signalfd_siginfo info;
      while (::read(signals_.get(), &info, sizeof info) == sizeof info)
        on_signal(static_cast<int>(info.ssi_signo));
    });
    return {};
  }

  void on_signal(int number) {
    if (number == SIGUSR1) {
      std::printf("cut %llu\n", static_cast<unsigned long long>(target_.cut()));
      std::fflush(stdout);
      return;
    }
    if (stopping_) return;
    stopping_ = true;
    if (device_)
      device_->stop([this](Status stopped) { on_device_stopped(stopped); });
    else
      stop_server();
  }

  void on_device_stopped(const Status& stopped) {
    if (!stopped) return give_up(stopped.error());
    stop_server();
  }

  void give_up(const Error& error) {
    log_error("{}", error.message);
    exit_status_ = 1;
    stopping_ = true;
    device_->abort([this] { stop_server(); });
  }

  void stop_server() {
    server_->stop([this] {
      std::printf(
          "end requests=%llu errors=%llu protocol_errors=%llu flushes=%llu fuas=%llu most_in_flight=%llu\n",
          static_cast<unsigned long long>(server_->counters().requests),
          static_cast<unsigned long long>(server_->counters().errors),
          static_cast<unsigned long long>(server_->counters().protocol_errors),
          static_cast<unsigned long long>(target_.flushes), static_cast<unsigned long long>(target_.fuas),
          static_cast<unsigned long long>(target_.most_in_flight));
      std::fflush(stdout);
      end_when_idle();
    });
  }

  void end_when_idle() {
    if (!device_ || device_->in_flight() == 0) return loop_.stop();
    loop_.after(std::chrono::milliseconds(1), [this] { end_when_idle(); });
  }

  void say_ready() {
    std::printf("ready nbd=%s tcp=%u device=%s\n", arguments_.nbd.c_str(), unsigned{port_},
                device_ ? device_->device().c_str() : "");
    std::fflush(stdout);
  }

  io::UringLoop& loop_;
  const Arguments& arguments_;
  RamTarget target_;
  exports::SideThread side_;
  std::optional<nbd::Server> server_;
  std::unique_ptr<exports::DeviceExport> device_;
  Fd signals_;
  std::uint16_t port_ = 0;
  bool stopping_ = false;
  int exit_status_ = 0;
};

int serve(const Arguments& arguments) {
  OsClock clock;
  auto loop = io::UringLoop::create(clock);
  if (!loop) {
    log_error("{}", loop.error().message);
    return 1;
  }
  Program program(**loop, arguments);
  Status done = program.start();
  if (done) done = (*loop)->run();
  (*loop)->set_turn_hook(nullptr);
  if (done) return program.exit_status();
  log_error("{}", done.error().message);
  return 1;
}

}  // namespace
}  // namespace twinloft::repl

int main(int argc, char** argv) {
  twinloft::repl::exports::serve_as_loop_process(argc, argv);
  twinloft::log_set_program("export_ram");
  auto arguments = twinloft::repl::parse(argc, argv);
  if (!arguments) {
    std::fprintf(
        stderr,
        "usage: export_ram --size-mib N [--seed N] [--nbd SOCKET] [--tcp PORT] [--mount FILE --link LINK]\n");
    return 2;
  }
  sigset_t set;  // before any thread starts, so that all threads inherit it
  sigemptyset(&set);
  for (int s : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, s);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return twinloft::repl::serve(*arguments);
}
