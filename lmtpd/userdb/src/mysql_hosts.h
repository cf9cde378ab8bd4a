// Decides which of several servers is tried, and how long a connection is kept. No I/O.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/userdb/mysql_db.h"

namespace twinloft::lmtpd {

// After a failure a server is not tried for 1 s, and for twice as long after each further failure, up to 30
// s. An answer resets this time. Thread-safe.
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

// Whether a connection to this host is used again. A connection ends after five minutes, so that changes of
// columns and settings take effect. To another host than the first, it ends after one minute. An idle
// connection ends after one minute, before a firewall on the way drops it.
bool may_use_again(std::size_t host, Duration age, Duration idle);

}  // namespace twinloft::lmtpd
