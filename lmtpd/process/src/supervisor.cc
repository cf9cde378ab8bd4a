#include "twinloft/lmtpd/process/supervisor.h"

#include <fmt/format.h>
#include <sysexits.h>

#include <algorithm>
#include <utility>

namespace twinloft::lmtpd {

namespace {

std::string describe(Ending e) {
  return e.signal != 0 ? fmt::format("by signal {}", e.signal)
                       : fmt::format("with exit code {}", e.exit_code);
}

}  // namespace

bool Supervisor::any(Phase phase) const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [&](const auto& s) { return s.second.phase == phase; });
}

Orders Supervisor::start(bool reread, std::optional<Instant> kill_at) {
  restart_at_.reset();
  servers_.emplace(++last_, Server{.kill_at = kill_at});
  Orders out;
  out.start = {last_, reread};
  return out;
}

Orders Supervisor::begin() {
  return start(false, std::nullopt);
}

Orders Supervisor::reload(Instant now) {
  if (stopping()) return {};
  if (any(Phase::starting)) {
    reload_again_ = true;
    return {};
  }
  return start(true, now + start_patience);
}

Orders Supervisor::tell_all(ServerCommand command) {
  Orders out;
  for (const auto& [id, server] : servers_)
    if (server.phase == Phase::starting)
      out.kill.push_back(id);
    else
      out.tell.push_back({id, command});
  if (servers_.empty()) out.exit = 0;
  return out;
}

Orders Supervisor::stop(Instant now) {
  restart_at_.reset();
  if (++stops_ == 1) return tell_all(ServerCommand::stop);
  for (auto& [id, server] : servers_)
    if (!server.kill_at) server.kill_at = now + patience;
  return tell_all(ServerCommand::abort);
}

// A process that ends or loses a helper soon after each start must not be restarted without a pause.
void Supervisor::restart_later(Instant now) {
  bool soon = ready_at_ && now - *ready_at_ < restart_pause_max;
  pause_ = soon || !ready_at_ ? std::min(pause_ * 2, restart_pause_max) : restart_pause;
  restart_at_ = now + pause_;
}

std::optional<Instant> Supervisor::next_look() const {
  bool expects = std::any_of(servers_.begin(), servers_.end(),
                             [](const auto& s) { return s.second.heard.has_value(); });
  if (!expects || !ticked_) return std::nullopt;
  return *ticked_ + look_pause;
}

std::optional<Instant> Supervisor::next_tick() const {
  std::optional<Instant> next = restart_at_;
  for (const auto& [id, server] : servers_)
    if (server.kill_at && (!next || *server.kill_at < *next)) next = server.kill_at;
  return next;
}

Orders Supervisor::ready(ServerId id, Instant now) {
  auto found = servers_.find(id);
  if (found == servers_.end() || found->second.phase != Phase::starting || stopping()) return {};
  Orders out;
  for (auto& [other, server] : servers_)
    if (server.phase == Phase::serving)
      server.phase = Phase::draining, out.tell.push_back({other, ServerCommand::drain});
  found->second.phase = Phase::serving;
  found->second.kill_at.reset();
  found->second.heard = now;
  ever_served_ = true;
  ready_at_ = now;
  restart_at_.reset();
  out.adopt = id;
  if (std::exchange(reload_again_, false)) out.start = start(true, now + start_patience).start;
  return out;
}

Orders Supervisor::ended(ServerId id, Ending ending, Instant now) {
  auto found = servers_.find(id);
  if (found == servers_.end()) return {};
  Phase phase = found->second.phase;
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
    if (!ending.good())
      out.errors.push_back(fmt::format("a server process that was replaced has ended {}", describe(ending)));
    return out;
  }
  out.errors.push_back(
      fmt::format("the server process has ended {}: starting a new one; {}", describe(ending), lost_));
  if (!any(Phase::starting)) restart_later(now);
  return out;
}

Orders Supervisor::start_failed(Ending ending, Instant now) {
  auto serving = std::find_if(servers_.begin(), servers_.end(),
                              [](const auto& s) { return s.second.phase == Phase::serving; });
  bool again = std::exchange(reload_again_, false);
  Orders out;
  if (serving == servers_.end() && !ever_served_) {
    out.exit = ending.exit_code != 0 ? ending.exit_code : EX_SOFTWARE;
    if (ending.signal != 0)
      out.errors.push_back(fmt::format("the server process has ended {}", describe(ending)));
    return out;
  }
  if (serving == servers_.end() || serving->second.crippled) {
    restart_later(now);
    out.errors.push_back(
        fmt::format("a new server process failed to start (it ended {}): next attempt in {} s",
                    describe(ending), pause_ / std::chrono::seconds(1)));
  } else {
    out.errors.push_back("reload: refused; keeping the previous configuration");
  }
  if (again) out.start = start(true, now + start_patience).start;
  return out;
}

void Supervisor::needs_replacement(ServerId id, Instant now) {
  auto found = servers_.find(id);
  if (found == servers_.end()) return;
  found->second.crippled = true;
  if (!stopping() && !any(Phase::starting) && found->second.phase == Phase::serving) restart_later(now);
}

void Supervisor::deaf(ServerId id, Instant now) {
  if (auto found = servers_.find(id); found != servers_.end() && !found->second.kill_at)
    found->second.kill_at = now + patience;
}

void Supervisor::heard(ServerId id, Instant now) {
  if (auto found = servers_.find(id); found != servers_.end() && found->second.heard)
    found->second.heard = now;
}

void Supervisor::leaves(ServerId id) {
  if (auto found = servers_.find(id); found != servers_.end()) found->second.heard.reset();
}

// If the supervisor itself did not run for a while (suspended machine), this time does not count as silence.
void Supervisor::note_silence(Instant now, Orders& out) {
  bool was_away = ticked_ && now - *ticked_ > 2 * look_pause;
  ticked_ = now;
  for (auto& [id, server] : servers_) {
    if (was_away && server.heard) server.heard = now;
    if (!server.heard || server.kill_at || now - *server.heard < silence_max) continue;
    out.kill.push_back(id);
    out.errors.push_back(fmt::format("a server process has given no sign of life for {} s, and is killed",
                                     silence_max / std::chrono::seconds(1)));
    server.kill_at = now + patience;
    give_up_on(server, now);
  }
}

// A killed process may take long to end: a thread blocked in the kernel on a disk keeps the process alive. So
// its replacement starts before its end.
void Supervisor::give_up_on(Server& server, Instant now) {
  if (server.phase == Phase::serving && !stopping() && !any(Phase::starting)) restart_later(now);
  server.phase = Phase::draining;
}

Orders Supervisor::tick(Instant now) {
  Orders out;
  note_silence(now, out);
  for (auto& [id, server] : servers_)
    if (server.kill_at && now >= *server.kill_at) {
      out.kill.push_back(id);
      out.errors.push_back(server.phase == Phase::starting
                               ? fmt::format("a server process was not ready after {} s, and is killed",
                                             start_patience / std::chrono::seconds(1))
                               : "a server process has not executed a command in time, and is killed");
      server.kill_at = now + patience;
    }
  if (restart_at_ && now >= *restart_at_) out.start = start(false, now + start_patience).start;
  return out;
}

}  // namespace twinloft::lmtpd
