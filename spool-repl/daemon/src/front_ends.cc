#include "front_ends.h"

#include <unistd.h>

#include <charconv>

#include "twinloft/base/log.h"
#include "twinloft/spool-repl/export/nbd_server.h"

namespace twinloft::repl::daemon {

struct FrontEnds::Parts {
  ports::Loop& loop;
  ports::BlockTarget& target;
  const VolumeSettings& settings;
  Epoch epoch;
  std::unique_ptr<nbd::Server> nbd;
  bool started = false, stopped = false;

  bool wanted() const { return settings.role == core::Role::primary; }
  std::string nbd_name() const { return settings.nbd_name + "@" + epoch.id.text(); }
  Status start_nbd();
};

FrontEnds::FrontEnds(ports::Loop& loop, ports::BlockTarget& target, const VolumeSettings& settings)
    : parts_(new Parts{loop, target, settings, {}, nullptr}) {}
FrontEnds::~FrontEnds() = default;

void FrontEnds::set_epoch(const Epoch& epoch) { parts_->epoch = epoch; }

// The name carries the epoch: a client that comes back after the primary was restarted finds no such export, rather
// than a device that has lost writes which it believed complete. With write_ack = "durable" nothing can be lost so.
Status FrontEnds::Parts::start_nbd() {
  nbd::ServerOptions options;
  options.accepts_name = [this](std::string_view name) {
    return name == nbd_name() || (settings.write_ack_durable && name == settings.nbd_name);
  };
  options.list_names = [this] { return std::vector<std::string>{nbd_name()}; };
  nbd = std::make_unique<nbd::Server>(loop, target, std::move(options));
  const std::string& where = settings.nbd_listen;
  if (where.starts_with("unix:")) return nbd->listen_unix(where.substr(5));
  std::size_t colon = where.rfind(':');
  std::uint16_t port = 0;
  const char* end = where.data() + where.size();
  auto [stop, error] = std::from_chars(where.data() + (colon == where.npos ? where.size() : colon + 1), end, port);
  if (colon == where.npos || error != std::errc() || stop != end)
    return fail(Errc::invalid, "volume.{}.nbd.listen: \"{}\" is neither unix:/path nor address:port", settings.name, where);
  std::string host = where.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  if (auto listening = nbd->listen_tcp(host, port); !listening) return std::unexpected(listening.error());
  return {};
}

void FrontEnds::start(std::function<void(Status)> done) {
  Status result;
  parts_->started = true;
  if (parts_->wanted() && !parts_->settings.nbd_listen.empty()) result = parts_->start_nbd();
  parts_->loop.post([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

void FrontEnds::stop(bool force, std::function<void(Status)> done) {
  (void)force;
  if (!parts_->nbd || parts_->stopped) {
    parts_->loop.post([done = std::move(done)] { done({}); });
    return;
  }
  parts_->stopped = true;
  parts_->nbd->stop([done = std::move(done)] { done({}); });
}

std::string FrontEnds::device() const { return parts_->wanted() ? parts_->settings.fuse_device : ""; }

std::string FrontEnds::nbd_uri(const Epoch&) const {
  if (!parts_->nbd) return "";
  const std::string& where = parts_->settings.nbd_listen;
  if (where.starts_with("unix:")) return fmt::format("nbd+unix:///{}?socket={}", parts_->nbd_name(), where.substr(5));
  return fmt::format("nbd://{}/{}", where, parts_->nbd_name());
}

}  // namespace twinloft::repl::daemon
