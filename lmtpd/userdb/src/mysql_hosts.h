// Which of several servers is asked, and how long a connection to one is kept. No network here.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/mysql_db.h"

namespace twinloft::lmtpd {

// A server that does not answer is left alone for a second, and for twice as long each further time, up to 30
// s; one answer ends that. Thread-safe.
class MysqlHosts {
 public:
  // Both must outlive this object.
  MysqlHosts(const std::vector<MysqlHost>& hosts, const Clock& clock)
      : hosts_(hosts), clock_(clock), states_(hosts.size()) {}

  std::size_t size() const { return hosts_.size(); }
  const MysqlHost& operator[](std::size_t i) const { return hosts_[i]; }
  bool may_try(std::size_t i) const;
  // Logs `why` for the first failure. While the host is not tried, further failures have no effect: their
  // attempts began earlier.
  void failed(std::size_t i, const std::string& why);
  void answered(std::size_t i);

 private:
  struct State {
    Instant not_before{};
    Duration pause{};
  };
  const std::vector<MysqlHost>& hosts_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::vector<State> states_;
};

// Whether a connection to the host of that index is used again. It ends after five minutes, so that what has
// changed at the server (columns, settings) counts; after one if an earlier host of the list is preferred to
// it; and idle for a minute, before something on the way forgets it.
bool may_use_again(std::size_t host, Duration age, Duration idle);

}  // namespace twinloft::lmtpd
