#include "front_ends.h"

#include <charconv>
#include <utility>
#include <vector>

#include "in_use.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/device_export.h"
#include "twinloft/spool-repl/export/nbd_server.h"
#include "twinloft/spool-repl/export/ublk_export.h"

namespace twinloft::repl::daemon {

void remove_stale_link(const VolumeSettings& settings) {
  for (const std::string* link : {&settings.fuse_device, &settings.ublk_device})
    if (!link->empty() && exports::remove_stale_symlink(*link))
      log_warning("volume {}: {}: removed: an earlier process left it behind", settings.name, *link);
}

struct FrontEnds::Parts {
  ports::Loop& loop;
  ports::BlockTarget& target;
  const VolumeSettings& settings;
  exports::DeviceEvent tell;
  Epoch epoch;  // of the promotion; changes of the in-sync set leave the name as it is
  std::unique_ptr<exports::SideThread> side;
  std::unique_ptr<exports::BlockDevice> device;
  std::unique_ptr<nbd::Server> nbd;
  bool nbd_stopped = false;
  std::vector<std::function<void(Status)>> nbd_waiting = {};
  std::vector<std::function<void(Status)>> device_waiting = {};
  bool device_gone = false, aborting = false;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);  // timers look at it first

  std::string nbd_name() const { return settings.nbd_name + "@" + epoch.id.text(); }
  void make_nbd();
  Status listen_nbd();
  void start_nbd(int attempts, std::function<void(Status)> done);
  void start_rest(std::function<void(Status)> done);
  Status start_device(std::function<void(Status)> done);
  const std::string& link() const {
    return settings.ublk_device.empty() ? settings.fuse_device : settings.ublk_device;
  }
  void stop_nbd(std::function<void(Status)> done);
  void later(std::function<void(Status)> done, Status status) {
    loop.post([done = std::move(done), status = std::move(status)]() mutable { done(std::move(status)); });
  }
};

FrontEnds::FrontEnds(ports::Loop& loop, ports::BlockTarget& target, const VolumeSettings& settings,
                     const Epoch& promotion, exports::DeviceEvent tell)
    : parts_(new Parts{loop, target, settings, std::move(tell), promotion, nullptr, nullptr, nullptr}) {}

// Exports go before the side thread: what they gave it is finished by then.
FrontEnds::~FrontEnds() {
  if (parts_->device && !parts_->device_gone) parts_->device->abort({});
  parts_->nbd.reset();
  parts_->device.reset();
  parts_->side.reset();
}

// The name carries the epoch: a client that comes back after the primary was restarted finds no such export,
// rather than a device that has lost writes which it believed complete. With write_ack = "durable" nothing
// can be lost so.
void FrontEnds::Parts::make_nbd() {
  nbd::ServerOptions options;
  options.accepts_name = [this](std::string_view name) {
    return name == nbd_name() || (settings.write_ack_durable && name == settings.nbd_name);
  };
  options.owner_flushes = true;
  options.list_names = [this] { return std::vector<std::string>{nbd_name()}; };
  nbd = std::make_unique<nbd::Server>(loop, target, std::move(options));
}

Status FrontEnds::Parts::listen_nbd() {
  const std::string& where = settings.nbd_listen;
  if (where.starts_with("unix:")) return nbd->listen_unix(where.substr(5));
  std::size_t colon = where.rfind(':');
  std::uint16_t port = 0;
  const char* end = where.data() + where.size();
  auto [stop, error] = std::from_chars(where.data() + (colon == where.npos ? where.size() : colon + 1), end,
                                       port);
  if (colon == where.npos || error != std::errc() || stop != end)
    return fail(Errc::invalid, "volume.{}.nbd.listen: \"{}\" is neither unix:/path nor address:port",
                settings.name, where);
  std::string host = where.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (auto listening = nbd->listen_tcp(host, port); !listening) return std::unexpected(listening.error());
  return {};
}

// A killed predecessor's socket may still be there: see in_use.h. Peers and disks are served meanwhile.
void FrontEnds::Parts::start_nbd(int attempts, std::function<void(Status)> done) {
  if (nbd_stopped || !nbd_waiting.empty())
    return done(fail(Errc::unavailable, "volume {}: stopped while it was being started", settings.name));
  Status listening = listen_nbd();
  if (listening || listening.error().code != Errc::unavailable || attempts <= 1)
    return done(std::move(listening));
  loop.after(in_use_pause, [this, attempts, done = std::move(done), watched = std::weak_ptr(alive)] {
    if (!watched.expired()) start_nbd(attempts - 1, done);
  });
}

Status FrontEnds::Parts::start_device(std::function<void(Status)> done) {
  side = std::make_unique<exports::SideThread>(loop);
  auto ready = [this, done = std::move(done)](Result<std::string> path) {
    if (!path) return done(std::unexpected(path.error()));
    log_info("volume {}: block device {}", settings.name, *path);
    done({});
  };
  if (!settings.ublk_device.empty()) {
    ublk::UblkOptions options;
    options.link = settings.ublk_device;
    options.owner_flushes = true;
    options.tell = tell;
    device = ublk::UblkExport::start(loop, target, *side, std::move(options), ublk::kernel_driver(),
                                     std::move(ready));
    return {};
  }
  exports::DeviceOptions options;
  options.fuse.mount_point = settings.fuse_file;
  options.link = settings.fuse_device;
  options.tell = tell;
  TL_TRY_ASSIGN(device,
                exports::DeviceExport::start(loop, target, *side, std::move(options), std::move(ready)));
  return {};
}

void FrontEnds::start(std::function<void(Status)> done) {
  Parts& p = *parts_;
  if (p.settings.nbd_listen.empty()) return p.start_rest(std::move(done));
  p.make_nbd();
  p.start_nbd(in_use_attempts, [&p, done = std::move(done)](Status listening) {
    if (listening)
      p.start_rest(done);
    else
      p.later(done, std::move(listening));
  });
}

void FrontEnds::Parts::start_rest(std::function<void(Status)> done) {
  if (settings.fuse_file.empty() && settings.ublk_device.empty()) return later(std::move(done), {});
  if (Status made = start_device(done); !made) later(std::move(done), std::move(made));
}

// Asked again while it is stopping (a second SIGTERM, or one during a demotion), it tells both when it is
// done.
void FrontEnds::Parts::stop_nbd(std::function<void(Status)> done) {
  if (!nbd || nbd_stopped) return later(std::move(done), {});
  nbd_waiting.push_back(std::move(done));
  if (nbd_waiting.size() > 1) return;
  nbd->stop([this] {
    nbd_stopped = true;
    for (auto& waiting : std::exchange(nbd_waiting, {})) waiting({});
  });
}

// The device first: it is the one that can refuse, and then nothing must have changed.
void FrontEnds::stop(bool force, std::function<void(Status)> done) {
  Parts& p = *parts_;
  if (!p.device || (p.device_gone && !p.aborting)) return p.stop_nbd(std::move(done));
  if (force || p.aborting) {
    p.aborting = p.device_gone = true;
    return p.device->abort([&p, done = std::move(done)] { p.stop_nbd(done); });
  }
  // A demotion and a SIGTERM may meet: one of them stops it, both hear how that went.
  p.device_waiting.push_back(std::move(done));
  if (p.device_waiting.size() > 1) return;
  p.device->stop([&p](Status s) {
    auto waiting = std::exchange(p.device_waiting, {});
    if (s) p.device_gone = true;
    for (auto& one : waiting) {
      if (s)
        p.stop_nbd(std::move(one));
      else
        one(std::unexpected(s.error()));
    }
  });
}

void FrontEnds::flush() {
  if (parts_->nbd) parts_->nbd->flush();
  if (parts_->device) parts_->device->flush();
}

std::string FrontEnds::device() const {
  if (!parts_->device || parts_->device->device().empty()) return "";
  return parts_->link().empty() ? parts_->device->device() : parts_->link();
}

bool FrontEnds::device_lost() const {
  return parts_->device && !parts_->device_gone && !parts_->device->trouble().empty();
}

std::string FrontEnds::device_trouble() const {
  const Parts& p = *parts_;
  if ((p.settings.fuse_file.empty() && p.settings.ublk_device.empty()) || p.device_gone) return "";
  if (!p.device) return "not attached yet";
  if (std::string lost = p.device->trouble(); !lost.empty()) return "LOST: " + lost;
  return p.device->device().empty() ? "not attached yet" : "";
}

std::string FrontEnds::nbd_uri() const {
  if (!parts_->nbd) return "";
  const std::string& where = parts_->settings.nbd_listen;
  if (where.starts_with("unix:"))
    return fmt::format("nbd+unix:///{}?socket={}", parts_->nbd_name(), where.substr(5));
  return fmt::format("nbd://{}/{}", where, parts_->nbd_name());
}

}  // namespace twinloft::repl::daemon
