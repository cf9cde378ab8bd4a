#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "commands.h"
#include "twinloft/base/log.h"
#include "twinloft/base/service_manager.h"
#include "twinloft/spool-repl/daemon/volume_runner.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace twinloft::repl::ctl {

namespace {

// A process that block I/O runs through must not wait for block I/O to get memory.
void keep_out_of_reclaim() {
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0)
    log_warning("Missing CAP_SYS_RESOURCE: under memory pressure the volumes may deadlock. Start spool-repl by its unit");
  if (::mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
    log_warning("mlockall: {}: under memory pressure the device may stall (raise LimitMEMLOCK)",
                fail_errno(errno, "not locked").error().message);
}

}  // namespace

int serve(const daemon::NodeSettings& node) {
  // Blocked before any thread exists, so that all threads inherit it and sigwait gets them.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  signal(SIGPIPE, SIG_IGN);
  log_set_level(node.log_level);
  LogWriter log;
  keep_out_of_reclaim();

  std::vector<std::unique_ptr<daemon::VolumeRunner>> volumes;
  int result = exit_ok;
  for (const daemon::VolumeSettings& settings : node.volumes) {
    auto runner = std::make_unique<daemon::VolumeRunner>(settings);
    if (Status started = runner->start(); !started) {
      log_error("volume {}: {}", settings.name, started.error().message);
      result = exit_failed;
      break;
    }
    volumes.push_back(std::move(runner));
  }
  if (result == exit_ok) {
    log_info("serving {} volume(s)", volumes.size());
    tell_service_manager(fmt::format("READY=1\nSTATUS=serving {} volume(s)", volumes.size()));
    int signal = 0;
    sigwait(&stop, &signal);
  }
  tell_service_manager("STOPPING=1\nSTATUS=bringing everything home");
  for (auto& v : volumes) v->request_stop(false);
  // Whoever signals again wants the devices gone, mounted or not.
  std::jthread again([&](std::stop_token token) {
    timespec tenth{0, 100'000'000};
    while (!token.stop_requested())
      if (sigtimedwait(&stop, nullptr, &tenth) > 0)
        for (auto& v : volumes) v->request_stop(true);
  });
  for (auto& v : volumes) v->wait();
  for (auto& v : volumes)
    if (v->failed()) result = exit_failed;
  return result;
}

}  // namespace twinloft::repl::ctl
