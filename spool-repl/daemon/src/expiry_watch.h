// Warns before a certificate ends: once at each of some numbers of days, and once at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::daemon {

class ExpiryWatch {
 public:
  // peer: 0 for this replica's own certificate.
  using Tell = std::function<void(ReplicaId peer, const std::string& text)>;
  explicit ExpiryWatch(Tell tell) : tell_(std::move(tell)) {}

  // Both times in seconds since 1970. Another end than before is another certificate.
  void look(ReplicaId peer, std::int64_t ends, std::int64_t now);

 private:
  struct Seen {
    std::int64_t ends = 0;
    std::size_t step = 0;  // the number of warnings that are past
  };
  Tell tell_;
  std::map<ReplicaId, Seen> seen_;
};

// "2026-12-07", in UTC.
std::string date_text(std::int64_t seconds);

}  // namespace twinloft::repl::daemon
