#include "expiry_watch.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>

namespace twinloft::repl::daemon {

namespace {

constexpr std::int64_t day = 86'400;
constexpr std::array<std::int64_t, 6> warned_at = {30, 14, 7, 3, 1, 0};  // days before the end

std::size_t step_at(std::int64_t left) {
  std::size_t step = 0;
  while (step < warned_at.size() && left <= warned_at[step] * day) ++step;
  return step;
}

}  // namespace

std::string date_text(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

void ExpiryWatch::look(ReplicaId peer, std::int64_t ends, std::int64_t now) {
  Seen& seen = seen_[peer];
  if (seen.ends != ends) seen = {ends, 0};
  std::int64_t left = ends - now;
  std::size_t step = step_at(left);
  if (step <= seen.step) return;
  seen.step = step;
  std::string whose = peer == 0 ? "the certificate of this replica"
                                : fmt::format("the certificate of replica {}", peer);
  if (left <= 0)
    return tell_(peer, fmt::format("{} has ended ({}): no new connection is possible until it is renewed",
                                   whose, date_text(ends)));
  std::string remedy = peer == 0 ? ": renew it (spool-repl cert renew), then reload" : "";
  tell_(peer,
        fmt::format("{} ends in {} day(s), on {}{}", whose, (left + day - 1) / day, date_text(ends), remedy));
}

}  // namespace twinloft::repl::daemon
