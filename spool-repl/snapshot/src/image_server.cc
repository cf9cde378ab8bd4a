#include "image_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "twinloft/base/process.h"
#include "twinloft/spool-repl/export/fuse_export.h"
#include "twinloft/spool-repl/io/uring_loop.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace twinloft::repl::snapshot {

namespace {

constexpr std::string_view ready = "ready";

// Serves until it is killed. Returns only an error of the start.
Status serve(CowTarget& target, const std::string& mount_point, int tell) {
  OsClock clock;
  TL_TRY_ASSIGN(auto loop, io::UringLoop::create(clock));
  exports::SideThread side(*loop);
  fuse::FuseOptions options;
  options.mount_point = mount_point;
  TL_TRY_ASSIGN(auto file, fuse::FuseExport::start(*loop, target, side, std::move(options)));
  TL_TRY(write_all(tell, std::as_bytes(std::span(ready))));
  return loop->run();
}

[[noreturn]] void be_server(CowTarget& target, const std::string& mount_point, pid_t parent, int tell) {
  // A signal of the terminal ends the process that uses the image, and this process with it.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  // Best effort: memory for a request must not wait for the file system that waits for the request.
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
  Status ended = serve(target, mount_point, tell);
  if (!ended) (void)write_all(tell, std::as_bytes(std::span(ended.error().message)));
  ::_exit(1);
}

Result<std::string> read_to_ready(int fd) {
  std::string text;
  char buffer[512];
  while (text != ready) {
    ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "the process that serves the image");
    if (n == 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<ImageServer>> ImageServer::start(CowTarget& target, const std::string& mount_point) {
  auto pipe = make_pipe();
  if (!pipe)
    return fail(pipe.error().code, "no pipe to the process that serves the image: {}", pipe.error().message);
  Fd told = std::move(pipe->read), tell = std::move(pipe->write);
  pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return fail_errno(errno, "no process to serve the image");
  if (pid == 0) be_server(target, mount_point, parent, tell.get());
  std::unique_ptr<ImageServer> server(new ImageServer(pid));
  tell.reset();
  TL_TRY_ASSIGN(std::string text, read_to_ready(told.get()));
  if (text == ready) return server;
  return fail(Errc::unavailable, "the image cannot be served: {}",
              text.empty() ? "the process has ended" : text);
}

ImageServer::~ImageServer() {
  ::kill(pid_, SIGKILL);
  (void)wait_for_child(pid_);
}

}  // namespace twinloft::repl::snapshot
