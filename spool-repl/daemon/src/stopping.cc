#include "stopping.h"

#include <fmt/format.h>

namespace twinloft::repl::daemon {

Stopping::Next Stopping::force() {
  forced_ = true;
  state_ = Forcing{};
  return Next::take_front_ends;
}

Stopping::Next Stopping::drain(Instant now) {
  state_ = Draining{.until = now + drain_time_max};
  return Next::drain;
}

Stopping::Next Stopping::ask(bool force_it, bool failed) {
  if (std::holds_alternative<Serving>(state_)) {
    failed_before_ = failed;
    state_ = Trying{force_it, ""};
    return Next::stop_front_ends;
  }
  if (auto* refused = std::get_if<Refused>(&state_)) {
    state_ = Trying{force_it, std::move(refused->refusal)};
    return Next::stop_front_ends;
  }
  if (is_draining() || !force_it) return Next::nothing;
  return force();
}

Stopping::Next Stopping::front_ends_stopped(const Status& stopped, Instant now) {
  if (is_draining()) return Next::nothing;
  if (stopped) return drain(now);
  const auto* trying = std::get_if<Trying>(&state_);
  if (!trying) return Next::nothing;  // force was requested meanwhile
  if (trying->force) return force();
  state_ = Refused{stopped.error().message +
                   ". Unmount it first. A second request takes the device away from its users"};
  return Next::nothing;
}

Stopping::Next Stopping::front_ends_taken(Instant now) {
  return is_draining() ? Next::nothing : drain(now);
}

Stopping::Next Stopping::try_again(bool role_changes) {
  auto* refused = std::get_if<Refused>(&state_);
  if (!refused || role_changes) return Next::nothing;
  state_ = Trying{false, std::move(refused->refusal)};
  return Next::stop_front_ends;
}

void Stopping::flushed() {
  if (auto* draining = std::get_if<Draining>(&state_)) draining->flushed = true;
}

Stopping::Next Stopping::turn(const core::VolumeStatus& status, bool settled, Instant now) {
  auto* draining = std::get_if<Draining>(&state_);
  if (!draining) return Next::nothing;
  if (draining->flushed && !draining->checkpoint_asked) {
    draining->checkpoint_asked = true;
    return Next::checkpoint;
  }
  bool cannot_finish = status.failed || (status.suspended && status.durable == status.last);
  bool done = (draining->flushed && settled) || cannot_finish;
  if (!done && now < draining->until) return Next::nothing;
  state_ = Ended{};
  return Next::end;
}

std::string Stopping::waits_for(const core::VolumeStatus& status, Duration oldest_request) const {
  if (const auto* refused = std::get_if<Refused>(&state_)) return refused->refusal;
  const auto* trying = std::get_if<Trying>(&state_);
  if (!trying) return "";
  if (!trying->refusal.empty()) return trying->refusal;
  if (!status.suspended && oldest_request < slow_request) return "";
  std::string why = status.suspended
                        ? fmt::format("the volume is suspended: writes wait for {}", status.waits_for)
                        : "requests of the device are not answered";
  return why +
         ". A second SIGTERM stops it at once: waiting requests fail, and acknowledged writes stay in the "
         "journal";
}

}  // namespace twinloft::repl::daemon
