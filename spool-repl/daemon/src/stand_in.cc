#include "stand_in.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "twinloft/base/json.h"
#include "twinloft/base/log.h"
#include "twinloft/spool-repl/control/control.h"
#include "twinloft/spool-repl/daemon/events.h"
#include "twinloft/spool-repl/io/uring_loop.h"
#include "volume_state.h"

namespace twinloft::repl::daemon {

namespace {
constexpr const char* way_out =
    "correct the error, then run `systemctl reload spool-repl` (SIGHUP); spool-repl also tries again every "
    "minute";
}

StandIn::StandIn(VolumeSettings settings, std::optional<Error> why)
    : settings_(std::move(settings)),
      why_(std::move(why)),
      teller_(settings_, settings_.uuid, clock_),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { serve(); }) {
  tell(why_);
  ready_.get_future().wait();
}

void StandIn::tell(const std::optional<Error>& why) {
  teller_.tell(why ? VolumeState::failed : VolumeState::starting, "",
               why ? "not served: " + why->message : "");
}

StandIn::~StandIn() {
  std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

bool StandIn::take(const VolumeSettings& settings, const Error& why) {
  bool same = settings.control == settings_.control && settings.status_group == settings_.status_group &&
              settings.status_everybody == settings_.status_everybody &&
              settings.replica == settings_.replica && settings.state_file == settings_.state_file;
  if (!same || !serving_) return false;
  tell(why);
  std::lock_guard lock(mutex_);
  why_ = why;
  return true;
}

Result<std::string> StandIn::answer(const std::string& command) const {
  std::lock_guard lock(mutex_);
  VolumeState state = why_ ? VolumeState::failed : VolumeState::starting;
  std::string trouble = why_ ? "not served: " + why_->message
                             : "not served yet: the journal is being replayed";
  std::string first = fmt::format("{}  {}: {}\n", settings_.name, state_text(state), trouble);
  if (command == "status") return why_ ? fmt::format("{}  {}\n", first, way_out) : first;
  if (command == "status line") return first;
  if (command == "status json") {
    json::object root{{"name", settings_.name},
                      {"replica", settings_.replica},
                      {"state", name_of(state)},
                      {"served", false},
                      {"role", nullptr},
                      {"failed", why_.has_value()},
                      {"failure", why_ ? why_->message : ""},
                      {"suspended", false},
                      {"device", ""},
                      {"nbd", ""},
                      {"in_sync", json::array{}},
                      {"peers", json::array{}}};
    return json::serialize(root) + "\n";
  }
  return fail(Errc::unavailable, "the volume is {}{}{}", trouble, why_ ? "; " : "", why_ ? way_out : "");
}

// Ends early if it cannot listen, perhaps for the reason that stops the volume.
void StandIn::serve() {
  OsClock clock;
  auto loop = io::UringLoop::create(clock, {.entries = 64});
  if (loop) {
    control::Server server(
        **loop, settings_.control,
        [this](const std::string& c, control::Server::Reply reply) { reply(answer(c)); },
        control::Access{settings_.status_everybody, settings_.status_group});
    if (server.start()) {
      (*loop)->watch(wake_.get(), ports::Loop::readable, [&](unsigned) { (*loop)->stop(); });
      ready_.set_value();
      (void)(*loop)->run();
      serving_ = false;
      return;
    }
  }
  serving_ = false;
  ready_.set_value();
}

}  // namespace twinloft::repl::daemon
