#include "twinloft/lmtpd/supervisor/supervisor.h"

#include <fmt/format.h>
#include <sysexits.h>

#include <algorithm>
#include <utility>

namespace twinloft::lmtpd {

namespace {

std::string describe(Ending e) {
  return e.signal != 0 ? fmt::format("by signal {}", e.signal) : fmt::format("with exit code {}", e.exit_code);
}

}  // namespace

bool Supervisor::any(Phase phase) const {
  return std::any_of(servers_.begin(), servers_.end(), [&](const auto& s) { return s.second == phase; });
}

Orders Supervisor::start(bool reread) {
  restart_at_.reset();
  servers_.emplace(++last_, Phase::starting);
  Orders out;
  out.start = {last_, reread};
  return out;
}

Orders Supervisor::begin() { return start(false); }

Orders Supervisor::reload() {
  if (stopping()) return {};
  if (any(Phase::starting)) {
    reload_again_ = true;
    return {};
  }
  return start(true);
}

Orders Supervisor::tell_all(ServerCommand command) {
  Orders out;
  for (const auto& [id, phase] : servers_)
    if (phase == Phase::starting) out.kill.push_back(id);
    else out.tell.push_back({id, command});
  if (servers_.empty()) out.exit = 0;
  return out;
}

Orders Supervisor::stop() {
  restart_at_.reset();
  return tell_all(++stops_ == 1 ? ServerCommand::stop : ServerCommand::abort);
}

Orders Supervisor::ready(ServerId id) {
  auto found = servers_.find(id);
  if (found == servers_.end() || found->second != Phase::starting || stopping()) return {};
  Orders out;
  for (auto& [other, phase] : servers_)
    if (std::exchange(phase, phase == Phase::serving ? Phase::draining : phase) == Phase::serving) out.tell.push_back({other, ServerCommand::drain});
  found->second = Phase::serving;
  ever_served_ = true;
  out.adopt = id;
  if (std::exchange(reload_again_, false)) out.start = start(true).start;
  return out;
}

Orders Supervisor::ended(ServerId id, Ending ending, Instant now) {
  auto found = servers_.find(id);
  if (found == servers_.end()) return {};
  Phase phase = found->second;
  servers_.erase(found);
  if (stopping()) {
    Orders out;
    all_good_ = all_good_ && (ending.good() || phase == Phase::starting);
    if (servers_.empty()) out.exit = all_good_ ? 0 : EX_TEMPFAIL;
    return out;
  }
  if (phase == Phase::starting) return start_failed(ending, now);
  Orders out;
  if (phase == Phase::draining) {
    if (!ending.good()) out.errors.push_back(fmt::format("a serving process that was replaced has ended {}", describe(ending)));
    return out;
  }
  out.errors.push_back(fmt::format("the serving process has ended {}: another one is started; clients of deliveries under way got no 250", describe(ending)));
  if (!any(Phase::starting)) restart_at_ = now + restart_pause;
  return out;
}

Orders Supervisor::start_failed(Ending ending, Instant now) {
  Orders out;
  if (any(Phase::serving)) {
    out.errors.push_back("reload: refused; what was in use before is used on");
    if (std::exchange(reload_again_, false)) out.start = start(true).start;
  } else if (!ever_served_) {
    out.exit = ending.exit_code != 0 ? ending.exit_code : EX_SOFTWARE;
    if (ending.signal != 0) out.errors.push_back(fmt::format("the serving process has ended {}", describe(ending)));
  } else {
    out.errors.push_back(fmt::format("a serving process could not be started (it ended {}): again in {} s", describe(ending), restart_pause / std::chrono::seconds(1)));
    restart_at_ = now + restart_pause;
  }
  return out;
}

Orders Supervisor::needs_replacement(ServerId id) {
  auto found = servers_.find(id);
  if (stopping() || any(Phase::starting) || found == servers_.end() || found->second != Phase::serving) return {};
  return start(false);
}

Orders Supervisor::tick(Instant now) {
  if (!restart_at_ || now < *restart_at_) return {};
  return start(false);
}

}  // namespace twinloft::lmtpd
