#include "twinloft/spool-repl/daemon/volume_supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <system_error>

#include "core_settings.h"
#include "stand_in.h"
#include "twinloft/base/log.h"

namespace twinloft::repl::daemon {

VolumeSupervisor::VolumeSupervisor(VolumeSettings settings, ProcessParts process,
                                   std::function<void()> changed, Duration late_after)
    : name_(settings.name),
      process_(std::move(process)),
      changed_(std::move(changed)),
      late_after_(late_after),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      settings_(std::move(settings)) {
  thread_ = std::thread([this] { run(); });
}

VolumeSupervisor::~VolumeSupervisor() {
  thread_.join();
}

VolumeSupervisor::State VolumeSupervisor::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

VolumeSettings VolumeSupervisor::settings() const {
  std::lock_guard lock(mutex_);
  return settings_;
}

bool VolumeSupervisor::ends() const {
  std::lock_guard lock(mutex_);
  return stop_asked_;
}

void VolumeSupervisor::set(State state) {
  {
    std::lock_guard lock(mutex_);
    state_ = std::move(state);
  }
  changed_();
}

void VolumeSupervisor::request_stop(bool force) {
  {
    std::lock_guard lock(mutex_);
    if (attempting_)
      log_warning(
          "volume {}: not stopped yet: the volume is still starting, and stops when its start has ended",
          name_);
    stop_asked_ = true;
    force_asked_ = force_asked_ || force;
    if (runner_) runner_->request_stop(force);
  }
  std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void VolumeSupervisor::reload(VolumeSettings settings, Security security) {
  {
    std::lock_guard lock(mutex_);
    settings_ = std::move(settings);
    if (runner_) {
      return runner_->reload(settings_, std::move(security));
    }
    retry_asked_ = true;
  }
  std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void VolumeSupervisor::run() {
  Duration pause = first_retry;
  std::string said;
  OsClock clock;
  for (;;) {
    Instant begun = clock.now();
    auto failed = serve_once();
    if (!failed || ends()) return set(Ended{failed.has_value()});
    // A volume that fails repeatedly is tried less often, since its peers wait for it each time.
    if (failed->was_served && clock.now() - begun >= last_retry) pause = first_retry;
    failed->was_served = was_served_;
    if (said != failed->why.message)
      log_line(LogLevel::error, fmt::format("volume {}: {}", name_, failed->why.message),
               {{"event", "not-served"}});
    said = failed->why.message;
    stand_in(failed->why);
    set(*failed);
    wait(pause);
    std::lock_guard lock(mutex_);
    if (stop_asked_) break;
    if (std::exchange(retry_asked_, false))
      pause = first_retry, said.clear();
    else
      pause = std::min(pause * 2, last_retry);
  }
  stand_in_.reset();
  set(Ended{});
}

// was_served: in this attempt. Empty: it ended as requested.
std::optional<VolumeSupervisor::Failed> VolumeSupervisor::serve_once() {
  VolumeSettings now = settings();
  if (stands_down_) now.role = core::Role::secondary, now.role_as_before = false;
  // The stand-in answers until the volume has its control socket, since a start may take time or fail.
  has_control_ = false;
  auto take_over = [this] {
    std::lock_guard lock(stand_in_mutex_);
    stand_in_.reset();
    has_control_ = true;
  };
  auto runner = std::make_shared<VolumeRunner>(
      std::move(now), process_, StartHooks{take_over, [this] { stand_in_for_start(); }, late_after_});
  attempts(true);
  Status started;
  try {
    started = places_differ(settings());
    if (started) started = runner->start();
  } catch (const std::system_error& e) {
    started = fail(Errc::exhausted, "cannot create a thread for the volume: {}", e.what());
  }
  attempts(false);
  if (!started) return Failed{std::move(started).error(), false};
  {
    std::lock_guard lock(mutex_);
    runner_ = runner;
    was_served_ = true;
    retry_asked_ = false;
    if (stop_asked_) runner->request_stop(force_asked_);
  }
  set(Serving{});
  runner->wait();
  std::lock_guard lock(mutex_);
  runner_ = nullptr;
  stands_down_ = stands_down_ || runner->stands_down();
  if (!runner->failed()) return std::nullopt;
  return Failed{{Errc::io, runner->failure(), 0}, true};
}

void VolumeSupervisor::stand_in(const Error& why) {
  VolumeSettings now = settings();
  std::lock_guard lock(stand_in_mutex_);
  if (stand_in_ && stand_in_->take(now, why)) return;
  stand_in_.reset();
  make_stand_in(std::move(now), why);
}

// If the thread cannot be created, only the log has the error. The other volumes continue.
void VolumeSupervisor::make_stand_in(VolumeSettings settings, std::optional<Error> why) {
  try {
    stand_in_ = std::make_unique<StandIn>(std::move(settings), std::move(why));
  } catch (const std::system_error& e) {
    log_warning("volume {}: no answers at its control socket: {}", name_, e.what());
  }
}

void VolumeSupervisor::stand_in_for_start() {
  std::lock_guard lock(stand_in_mutex_);
  if (has_control_ || stand_in_) return;
  log_warning("volume {}: still starting: it waits for its disks, or replays a large journal", name_);
  make_stand_in(settings(), std::nullopt);
}

void VolumeSupervisor::attempts(bool now) {
  std::lock_guard lock(mutex_);
  attempting_ = now;
}

void VolumeSupervisor::wait(Duration pause) {
  pollfd p{wake_.get(), POLLIN, 0};
  (void)::poll(&p, 1, static_cast<int>(pause / std::chrono::milliseconds(1)));
  std::uint64_t count;
  (void)!::read(wake_.get(), &count, sizeof count);
}

std::vector<std::string> keys_for_a_restart(const VolumeSettings& a, const VolumeSettings& b) {
  std::vector<std::string> out;
  auto compare = [&](const char* key, const auto&... fields) {
    if (!((std::invoke(fields, a) == std::invoke(fields, b)) && ...)) out.emplace_back(key);
  };
  using V = VolumeSettings;
  compare("uuid", &V::uuid), compare("replica", &V::replica), compare("role", &V::role, &V::role_as_before);
  compare("on_peer_loss", &V::on_peer_loss), compare("min_in_sync", &V::min_in_sync),
      compare("slow_peer", &V::slow_peer);
  compare("resync_latency_target", &V::resync_latency_target),
      compare("resync_rate_min", &V::resync_rate_min);
  compare("suspend_timeout", &V::suspend_timeout), compare("archive", &V::archive),
      compare("spill", &V::spill), compare("site", &V::site), compare("size", &V::size);
  compare("data", &V::data), compare("journal", &V::journal), compare("journal_size", &V::journal_size),
      compare("arena", &V::arena);
  compare("listen", &V::listen), compare("control", &V::control), compare("state_file", &V::state_file),
      compare("status_group", &V::status_group, &V::status_everybody);
  compare("write_ack", &V::write_ack_durable), compare("seal_after", &V::seal_after),
      compare("peer_timeout", &V::peer_timeout);
  compare("compression_threads", &V::compression_threads);
  compare("journal_writes_in_flight", &V::journal_writes_in_flight);
  compare("fuse", &V::fuse_file, &V::fuse_device, &V::fuse_transport), compare("ublk", &V::ublk_device),
      // A renewed certificate takes effect at once, and TLS as such does not.
      compare("nbd", &V::nbd_listen, &V::nbd_name, &V::nbd_has_tls);
  compare("arbiter", &V::arbiter);
  bool same_peers = std::equal(a.peers.begin(), a.peers.end(), b.peers.begin(), b.peers.end(),
                               [](const PeerSettings& x, const PeerSettings& y) {
                                 return x.id == y.id && x.protocol == y.protocol &&
                                        x.certificate_name == y.certificate_name && x.buffer == y.buffer &&
                                        x.site == y.site && x.through == y.through &&
                                        x.direct_cable == y.direct_cable &&
                                        (!x.direct_cable || x.addresses == y.addresses);
                               });
  if (!same_peers) out.emplace_back("peer");
  return out;
}

}  // namespace twinloft::repl::daemon
