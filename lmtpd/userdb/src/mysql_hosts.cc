#include "mysql_hosts.h"

#include <algorithm>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

constexpr Duration pause_first = std::chrono::seconds(1);
constexpr Duration pause_max = std::chrono::seconds(30);
constexpr Duration age_max = std::chrono::minutes(5);
constexpr Duration second_best_age_max = std::chrono::seconds(60);
constexpr Duration idle_max = std::chrono::seconds(60);

}  // namespace

bool MysqlHosts::may_try(std::size_t i) const {
  std::lock_guard lock(mutex_);
  return clock_.now() >= states_[i].not_before;
}

void MysqlHosts::failed(std::size_t i, const std::string& why) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    State& s = states_[i];
    if (clock_.now() < s.not_before) return;
    first = s.pause == Duration{};
    s.pause = first ? pause_first : std::min(s.pause * 2, pause_max);
    s.not_before = clock_.now() + s.pause;
  }
  if (first) log_warning("{}", why);
}

void MysqlHosts::answered(std::size_t i) {
  {
    std::lock_guard lock(mutex_);
    if (states_[i].pause == Duration{}) return;
    states_[i] = {};
  }
  log_info("user database {}: answers again", hosts_[i].text);
}

bool may_use_again(std::size_t host, Duration age, Duration idle) {
  return age < (host == 0 ? age_max : second_best_age_max) && idle < idle_max;
}

}  // namespace twinloft::lmtpd
