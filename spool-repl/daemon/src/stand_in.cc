#include "stand_in.h"

#include <poll.h>

#include <boost/json.hpp>

#include "twinloft/base/log.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/events.h"
#include "twinloft/spool-repl/io/uring_loop.h"
#include "volume_state.h"

namespace twinloft::repl::daemon {

namespace {
constexpr const char* way_out = "mend it, then `systemctl reload spool-repl` (SIGHUP) starts it at once; it is also tried again every minute";
}

StandIn::StandIn(VolumeSettings settings, Error why) : settings_(std::move(settings)), why_(std::move(why)) {}

Result<std::string> StandIn::answer(const std::string& command) const {
  if (command == "status")
    return fmt::format("{}  FAILED: not served: {}\n  {}\n", settings_.name, why_.message, way_out);
  if (command == "status line") return fmt::format("{}  FAILED: not served: {}\n", settings_.name, why_.message);
  if (command == "status json") {
    boost::json::object root{{"name", settings_.name}, {"replica", settings_.replica}, {"state", name_of(VolumeState::failed)}, {"served", false},
                             {"role", nullptr}, {"failed", true}, {"failure", why_.message}, {"suspended", false}, {"device", ""}, {"nbd", ""}, {"in_sync", boost::json::array{}}, {"peers", boost::json::array{}}};
    return boost::json::serialize(root) + "\n";
  }
  return fail(Errc::unavailable, "the volume is not served: {}; {}", why_.message, way_out);
}

void StandIn::serve(int wake, Duration pause) const {
  if (serve_control(wake, pause)) return;
  pollfd p{wake, POLLIN, 0};
  (void)::poll(&p, 1, static_cast<int>(pause / std::chrono::milliseconds(1)));
}

// False where it cannot even do that, perhaps for the reason that the volume itself is not served for.
bool StandIn::serve_control(int wake, Duration pause) const {
  OsClock clock;
  auto loop = io::UringLoop::create(clock, {.entries = 64});
  if (!loop) return false;
  control::Server server(
      **loop, settings_.control, [this](const std::string& c, control::Server::Reply reply) { reply(answer(c)); },
      control::Access{settings_.status_everybody, settings_.status_group});
  if (!server.start()) return false;
  (*loop)->watch(wake, ports::Loop::readable, [&](unsigned) { (*loop)->stop(); });
  (*loop)->after(pause, [&] { (*loop)->stop(); });
  return (*loop)->run().has_value();
}

}  // namespace twinloft::repl::daemon
