#include "front_ends.h"

#include <charconv>
#include <utility>
#include <vector>

#include "in_use.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/device_export.h"
#include "twinloft/spool-repl/export/nbd_server.h"
#include "twinloft/spool-repl/export/ring_test.h"
#include "twinloft/spool-repl/export/ublk_export.h"

namespace twinloft::repl::daemon {

void remove_stale_link(const VolumeSettings& settings) {
  for (const std::string* link : {&settings.fuse_device, &settings.ublk_device})
    if (!link->empty() && exports::remove_stale_symlink(*link))
      log_warning("volume {}: {}: removed: an earlier process left it behind", settings.name, *link);
}

namespace {

exports::Transport transport_of(const VolumeSettings& settings) {
  if (settings.fuse_transport == "io-uring") return exports::Transport::io_uring;
  return settings.fuse_transport == "dev-fuse" ? exports::Transport::dev_fuse : exports::Transport::automatic;
}

class ConfiguredFrontEnds final : public FrontEnds {
 public:
  ConfiguredFrontEnds(ports::Loop& loop, ports::BlockTarget& target, const VolumeSettings& settings,
                      const Epoch& promotion, std::shared_ptr<const stream::TlsContext> nbd_tls,
                      exports::DeviceEvent tell)
      : loop_(loop),
        target_(target),
        settings_(settings),
        tell_(std::move(tell)),
        epoch_(promotion),
        nbd_tls_(std::move(nbd_tls)) {}
  ~ConfiguredFrontEnds() override;

  void start(std::function<void(Status)> done) override;
  void stop(bool force, std::function<void(Status)> done) override;
  void flush() override;
  std::string device() const override;
  std::string device_trouble() const override;
  bool device_lost() const override;
  std::string nbd_uri() const override;
  void set_nbd_tls(std::shared_ptr<const stream::TlsContext> tls) override {
    if (nbd_) nbd_->set_tls(std::move(tls));
  }

 private:
  std::string nbd_name() const { return settings_.nbd_name + "@" + epoch_.id.text(); }
  void make_nbd();
  Status listen_nbd();
  void start_nbd(int attempts, std::function<void(Status)> done);
  void start_rest(std::function<void(Status)> done);
  Status start_device(std::function<void(Status)> done);
  const std::string& link() const {
    return settings_.ublk_device.empty() ? settings_.fuse_device : settings_.ublk_device;
  }
  void stop_nbd(std::function<void(Status)> done);
  void later(std::function<void(Status)> done, Status status) {
    loop_.post([done = std::move(done), status = std::move(status)]() mutable { done(std::move(status)); });
  }

  ports::Loop& loop_;
  ports::BlockTarget& target_;
  const VolumeSettings& settings_;
  exports::DeviceEvent tell_;
  Epoch epoch_;  // of the promotion; changes of the in-sync set do not change the name
  std::shared_ptr<const stream::TlsContext> nbd_tls_;
  std::unique_ptr<exports::SideThread> side_;
  std::unique_ptr<exports::BlockDevice> device_;
  std::unique_ptr<nbd::Server> nbd_;
  bool nbd_stopped_ = false;
  std::vector<std::function<void(Status)>> nbd_waiting_ = {};
  std::vector<std::function<void(Status)>> device_waiting_ = {};
  bool device_gone_ = false, aborting_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // timers check it first
};

// Exports end before the side thread, which has then completed their work.
ConfiguredFrontEnds::~ConfiguredFrontEnds() {
  if (device_ && !device_gone_) device_->abort({});
  nbd_.reset();
  device_.reset();
  side_.reset();
}

// The name has the epoch: a client that returns after a restart of the primary finds no such export, instead
// of a device that has lost writes which the client believes to be complete. With write_ack = "durable", no
// such loss is possible.
void ConfiguredFrontEnds::make_nbd() {
  nbd::ServerOptions options;
  options.accepts_name = [this](std::string_view name) {
    return name == nbd_name() || (settings_.write_ack_durable && name == settings_.nbd_name);
  };
  options.owner_flushes = true;
  options.tls = nbd_tls_;
  options.list_names = [this] { return std::vector<std::string>{nbd_name()}; };
  nbd_ = std::make_unique<nbd::Server>(loop_, target_, std::move(options));
}

Status ConfiguredFrontEnds::listen_nbd() {
  const std::string& where = settings_.nbd_listen;
  if (where.starts_with("unix:")) return nbd_->listen_unix(where.substr(5));
  std::size_t colon = where.rfind(':');
  std::uint16_t port = 0;
  const char* end = where.data() + where.size();
  auto [stop, error] = std::from_chars(where.data() + (colon == where.npos ? where.size() : colon + 1), end,
                                       port);
  if (colon == where.npos || error != std::errc() || stop != end)
    return fail(Errc::invalid, "volume.{}.nbd.listen: \"{}\" is neither unix:/path nor address:port",
                settings_.name, where);
  std::string host = where.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (auto listening = nbd_->listen_tcp(host, port); !listening) return std::unexpected(listening.error());
  return {};
}

// The socket of a killed earlier process may still exist: see in_use.h. Peers and disks are served
// meanwhile.
void ConfiguredFrontEnds::start_nbd(int attempts, std::function<void(Status)> done) {
  if (nbd_stopped_ || !nbd_waiting_.empty())
    return done(fail(Errc::unavailable, "volume {}: stopped while it was being started", settings_.name));
  Status listening = listen_nbd();
  if (listening || listening.error().code != Errc::unavailable || attempts <= 1)
    return done(std::move(listening));
  loop_.after(in_use_pause, [this, attempts, done = std::move(done), watched = std::weak_ptr(alive_)] {
    if (!watched.expired()) start_nbd(attempts - 1, done);
  });
}

Status ConfiguredFrontEnds::start_device(std::function<void(Status)> done) {
  side_ = std::make_unique<exports::SideThread>(loop_);
  auto ready = [this, done = std::move(done)](Result<std::string> path) {
    if (!path) return done(std::unexpected(path.error()));
    log_info("volume {}: block device {}", settings_.name, *path);
    done({});
  };
  if (!settings_.ublk_device.empty()) {
    ublk::UblkOptions options;
    options.link = settings_.ublk_device;
    options.owner_flushes = true;
    options.tell = tell_;
    device_ = ublk::UblkExport::start(loop_, target_, *side_, std::move(options), ublk::kernel_driver(),
                                      std::move(ready));
    return {};
  }
  exports::DeviceOptions options;
  options.fuse.mount_point = settings_.fuse_file;
  options.fuse.owner_flushes = true;
  options.transport = transport_of(settings_);
  options.test_ring = fuse::test_ring_in_process;
  options.link = settings_.fuse_device;
  options.tell = tell_;
  TL_TRY_ASSIGN(device_,
                exports::DeviceExport::start(loop_, target_, *side_, std::move(options), std::move(ready)));
  return {};
}

void ConfiguredFrontEnds::start(std::function<void(Status)> done) {
  if (settings_.nbd_listen.empty()) return start_rest(std::move(done));
  make_nbd();
  start_nbd(in_use_attempts, [this, done = std::move(done)](Status listening) {
    if (listening)
      start_rest(done);
    else
      later(done, std::move(listening));
  });
}

void ConfiguredFrontEnds::start_rest(std::function<void(Status)> done) {
  if (settings_.fuse_file.empty() && settings_.ublk_device.empty()) return later(std::move(done), {});
  if (Status made = start_device(done); !made) later(std::move(done), std::move(made));
}

// A second request while the front ends stop (by SIGTERM, or in a demotion) gets the same result.
void ConfiguredFrontEnds::stop_nbd(std::function<void(Status)> done) {
  if (!nbd_ || nbd_stopped_) return later(std::move(done), {});
  nbd_waiting_.push_back(std::move(done));
  if (nbd_waiting_.size() > 1) return;
  nbd_->stop([this] {
    nbd_stopped_ = true;
    for (auto& waiting : std::exchange(nbd_waiting_, {})) waiting({});
  });
}

// Stops the device first: if the device is in use, nothing else has changed.
void ConfiguredFrontEnds::stop(bool force, std::function<void(Status)> done) {
  if (!device_ || (device_gone_ && !aborting_)) return stop_nbd(std::move(done));
  if (force || aborting_) {
    aborting_ = device_gone_ = true;
    return device_->abort([this, done = std::move(done)] { stop_nbd(done); });
  }
  // A demotion and a SIGTERM may come together: one of them stops the front ends, and both get the result.
  device_waiting_.push_back(std::move(done));
  if (device_waiting_.size() > 1) return;
  device_->stop([this](Status s) {
    auto waiting = std::exchange(device_waiting_, {});
    if (s) device_gone_ = true;
    for (auto& one : waiting) {
      if (s)
        stop_nbd(std::move(one));
      else
        one(std::unexpected(s.error()));
    }
  });
}

void ConfiguredFrontEnds::flush() {
  if (nbd_) nbd_->flush();
  if (device_) device_->flush();
}

std::string ConfiguredFrontEnds::device() const {
  if (!device_ || device_->device().empty()) return "";
  return link().empty() ? device_->device() : link();
}

bool ConfiguredFrontEnds::device_lost() const {
  return device_ && !device_gone_ && !device_->trouble().empty();
}

std::string ConfiguredFrontEnds::device_trouble() const {
  if ((settings_.fuse_file.empty() && settings_.ublk_device.empty()) || device_gone_) return "";
  if (!device_) return "not attached yet";
  if (std::string lost = device_->trouble(); !lost.empty()) return "LOST: " + lost;
  return device_->device().empty() ? "not attached yet" : "";
}

std::string ConfiguredFrontEnds::nbd_uri() const {
  if (!nbd_) return "";
  const std::string& where = settings_.nbd_listen;
  if (where.starts_with("unix:")) return fmt::format("nbd+unix:///{}?socket={}", nbd_name(), where.substr(5));
  return fmt::format("{}://{}/{}", nbd_tls_ ? "nbds" : "nbd", where, nbd_name());
}

}  // namespace

std::unique_ptr<FrontEnds> make_front_ends(ports::Loop& loop, ports::BlockTarget& target,
                                           const VolumeSettings& settings, const Epoch& promotion,
                                           std::shared_ptr<const stream::TlsContext> nbd_tls,
                                           exports::DeviceEvent tell) {
  return std::make_unique<ConfiguredFrontEnds>(loop, target, settings, promotion, std::move(nbd_tls),
                                               std::move(tell));
}

}  // namespace twinloft::repl::daemon
