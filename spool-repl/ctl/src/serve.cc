// `serve`: serves every volume of the configuration, each independently, until SIGTERM or SIGINT.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "commands.h"
#include "twinloft/base/daemon_signals.h"
#include "twinloft/base/log.h"
#include "twinloft/base/service_manager.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/check.h"
#include "twinloft/spool-repl/daemon/link_security.h"
#include "twinloft/spool-repl/daemon/volume_supervisor.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace twinloft::repl::ctl {

namespace {

using daemon::VolumeSupervisor;

constexpr Duration ready_time_max = std::chrono::minutes(1);
constexpr Duration own_status_time = std::chrono::seconds(2);

// A file system depends on this process: no signal ends it without a log line, except SIGQUIT.
sigset_t blocked_signals() {
  sigset_t out;
  sigemptyset(&out);
  for (int number : daemon_signals()) sigaddset(&out, number);
  return out;
}

// A process in the path of block I/O must not wait for block I/O to get memory.
void keep_out_of_reclaim() {
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0)
    log_warning(
        "Missing CAP_SYS_RESOURCE: under memory pressure the volumes may deadlock. Start spool-repl by its "
        "unit");
  if (::mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
    log_warning("mlockall: {}: under memory pressure the device may stall (raise LimitMEMLOCK)",
                fail_errno(errno, "not locked").error().message);
}

// Another start fails until the configuration or a file is changed.
bool is_configuration(const Error& e) {
  bool missing = e.code == Errc::not_found && e.sys == 0;  // a part of the stored volume is missing; a
                                                           // missing file may come with its disk
  return missing || e.code == Errc::corrupt || e.code == Errc::invalid || e.code == Errc::denied ||
         e.code == Errc::conflict;
}

void for_each_line(std::string_view text, auto&& what) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    what(line);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
}

class Node {
 public:
  Node(daemon::NodeSettings settings, std::string path, Fd signals)
      : path_(std::move(path)),
        signals_(std::move(signals)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        process_{std::make_shared<stream::WorkPool>(settings.compression_threads),
                 std::make_shared<stream::SharedBandwidth>(),
                 std::make_shared<stream::MemoryPool>(daemon::link_memory_of(settings))},
        bandwidth_(settings.bandwidth),
        order_(std::move(settings.volumes)) {}

  int run() {
    started_ = clock_.now();
    set_bandwidth(bandwidth_);
    for (const daemon::VolumeSettings& v : order_) add(v);
    while (!all<VolumeSupervisor::Ended>()) {
      wait();
      look();
    }
    for (const auto& v : volumes_)
      if (auto ended = v->state(); result_ == exit_ok && std::get<VolumeSupervisor::Ended>(ended).failed)
        result_ = exit_failed;
    return result_;
  }

 private:
  void add(const daemon::VolumeSettings& v) {
    volumes_.push_back(std::make_unique<VolumeSupervisor>(v, process_, [wake = wake_.get()] {
      std::uint64_t one = 1;
      (void)!::write(wake, &one, sizeof one);
    }));
  }

  template <class S>
  std::size_t count() const {
    return static_cast<std::size_t>(std::count_if(volumes_.begin(), volumes_.end(), [](const auto& v) {
      return std::holds_alternative<S>(v->state());
    }));
  }
  template <class S>
  bool all() const {
    return count<S>() == volumes_.size();
  }

  void wait() {
    pollfd waits[] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    (void)::poll(waits, 2, ready_ ? -1 : 1000);
    std::uint64_t changes;
    (void)!::read(wake_.get(), &changes, sizeof changes);
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == sizeof info)
      on_signal(static_cast<int>(info.ssi_signo));
  }

  // Called after each change of a volume.
  void look() {
    if (!ready_ && !stopping_ && all<VolumeSupervisor::Failed>()) return give_up();
    bool waited = clock_.now() - started_ >= ready_time_max;
    if (!ready_ && !stopping_ && (count<VolumeSupervisor::Starting>() == 0 || waited) &&
        count<VolumeSupervisor::Serving>() > 0) {
      ready_ = true;
      tell_service_manager("READY=1");
    }
    if (!ready_ || stopping_ || said_ == summary()) return;
    said_ = summary();
    tell_service_manager("STATUS=" + said_);
    if (count<VolumeSupervisor::Failed>() == 0) return log_info("{}", said_);
    log_warning(
        "{}. What failed is tried again every {} to {} s; SIGHUP (systemctl reload spool-repl) tries at once",
        said_, daemon::first_retry / std::chrono::seconds(1), daemon::last_retry / std::chrono::seconds(1));
  }

  std::string summary() const {
    std::string out = fmt::format("serving {} of {} volume(s)", count<VolumeSupervisor::Serving>(),
                                  volumes_.size());
    for (const auto& v : volumes_) {
      auto state = v->state();
      if (std::holds_alternative<VolumeSupervisor::Starting>(state))
        out += fmt::format("; {} is being started", v->name());
      if (auto* failed = std::get_if<VolumeSupervisor::Failed>(&state))
        out += fmt::format("; {} FAILED: {}", v->name(), failed->why.message);
    }
    return out;
  }

  // No volume could be started: the exit code reports this to the service manager. No served volume ends by
  // this.
  void give_up() {
    bool configuration = true;
    for (const auto& v : volumes_)
      configuration = configuration && is_configuration(std::get<VolumeSupervisor::Failed>(v->state()).why);
    log_error("no volume could be started");
    stop(false);
    result_ = configuration ? exit_config : exit_failed;
  }

  void on_signal(int signal) {
    switch (signal) {
      case SIGTERM:
      case SIGINT:
        return stop(stopping_);
      case SIGHUP:
        return reload();
      case SIGUSR1:
        return log_status();
      default:
        return log_warning("{} has no meaning here: ignored", signal_name(signal));
    }
  }

  // A second signal takes the devices away, also mounted devices.
  void stop(bool force) {
    if (!std::exchange(stopping_, true)) {
      if (count<VolumeSupervisor::Failed>() > 0) result_ = exit_failed;
      tell_service_manager("STOPPING=1\nSTATUS=bringing everything home");
    }
    for (auto& v : volumes_) v->request_stop(force);
  }

  void set_bandwidth(const stream::BandwidthPlan& plan) {
    ::tzset();  // the time zone may be another by now
    process_.bandwidth->set_plan(plan);
    process_.bandwidth->look_at_clock(stream::minute_of_day(clock_.wall()), clock_.now());
  }

  // Volumes that the file has no more are served until a restart, and so are their links.
  void set_link_memory(const daemon::NodeSettings& node) {
    std::vector<daemon::VolumeSettings> also;
    for (const auto& v : volumes_)
      if (std::none_of(node.volumes.begin(), node.volumes.end(),
                       [&](const auto& n) { return n.name == v->name(); }))
        also.push_back(v->settings());
    std::uint64_t before = process_.memory->bytes(), bytes = daemon::link_memory_of(node, also);
    if (bytes == before) return;
    if (Status set = process_.memory->set_bytes(bytes); !set)
      log_error("reload: link_memory stays {} MiB: {}, with those of volumes that the file has no more",
                before >> 20, set.error().message);
    else
      log_info("reload: link_memory is {} MiB, and was {} MiB", bytes >> 20, before >> 20);
  }

  // ---- SIGHUP

  void reload() {
    if (stopping_) return log_warning("reload: refused: the node is being stopped");
    if (ready_) tell_service_manager("RELOADING=1");
    if (auto node = daemon::load_config(path_)) {
      log_set_level(node->log_level);
      set_bandwidth(node->bandwidth);
      set_link_memory(*node);
      for (const auto& v : node->volumes) reload_volume(v);
      for (const auto& v : volumes_)
        if (std::none_of(node->volumes.begin(), node->volumes.end(),
                         [&](const auto& n) { return n.name == v->name(); }))
          log_warning("volume {}: no longer in {}: it is served until spool-repl is restarted", v->name(),
                      path_);
      log_info("reload: {}: done", path_);
    } else {
      for_each_line(node.error().message,
                    [](std::string_view line) { log_error("reload: refused: {}", line); });
      log_error("reload: keeping the previous configuration");
    }
    if (ready_) tell_service_manager("READY=1\nSTATUS=" + summary());
  }

  void reload_volume(const daemon::VolumeSettings& now) {
    auto found = std::find_if(volumes_.begin(), volumes_.end(),
                              [&](const auto& v) { return v->name() == now.name; });
    if (found == volumes_.end()) {
      log_info("volume {}: new in {}: it is started", now.name, path_);
      return add(now);
    }
    VolumeSupervisor& volume = **found;
    auto security = daemon::read_security(now);
    if (!security)
      return log_error("volume {}: reload: refused, keeping its previous configuration: {}", now.name,
                       security.error().message);
    std::vector<std::string> waits = daemon::keys_for_a_restart(volume.settings(), now);
    bool served = std::holds_alternative<VolumeSupervisor::Serving>(volume.state());
    volume.reload(now, std::move(*security));
    if (!served || waits.empty()) return;
    std::string keys;
    for (const std::string& key : waits) keys += (keys.empty() ? "" : ", ") + key;
    log_warning("volume {}: reload: {} take(s) effect only when spool-repl is restarted", now.name, keys);
  }

  // ---- SIGUSR1

  void log_status() {
    for (const auto& v : volumes_) {
      auto line = control::ask(v->settings().control, "status line", own_status_time);
      if (line && line->ends_with('\n')) line->pop_back();
      if (line)
        log_info("status: {}", *line);
      else
        log_warning("status: {}: {}", v->name(), line.error().message);
    }
  }

  const std::string path_;
  Fd signals_, wake_;
  const daemon::ProcessParts process_;  // outlives the volumes
  OsClock clock_;
  Instant started_;
  const stream::BandwidthPlan bandwidth_;  // at the start
  std::vector<daemon::VolumeSettings> order_;
  std::vector<std::unique_ptr<VolumeSupervisor>> volumes_;
  bool ready_ = false, stopping_ = false;
  std::string said_;  // the last summary
  int result_ = exit_ok;
};

}  // namespace

int serve(const daemon::NodeSettings& node, const std::string& path) {
  // Blocked before any thread exists, so that all threads inherit it and the descriptor gets them.
  sigset_t all = blocked_signals();
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  signal(SIGPIPE, SIG_IGN);
  log_set_level(node.log_level);
  LogWriter log;
  Fd signals(::signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return report(fail_errno(errno, "signalfd").error(), exit_failed);
  keep_out_of_reclaim();
  return Node(node, path, std::move(signals)).run();
}

}  // namespace twinloft::repl::ctl
