// What all connections share: the configured filters, whether they can be reached, and the open chains.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "twinloft/base/log_gate.h"
#include "twinloft/lmtpd/connect/stream.h"
#include "twinloft/lmtpd/connect/target_health.h"
#include "twinloft/lmtpd/filters/filters.h"

namespace twinloft::lmtpd {

class FilterChain;

class FilterSet final : public Filters {
 public:
  FilterSet(FiltersConfig config, Connector& connector, const Clock& clock);

  std::shared_ptr<FilterSession> open(MakeStoredBody make_body) override;
  void give_up() override;

  // A connection to the filter. Errors: those of Connector, Errc::unavailable while it is not tried.
  Result<std::unique_ptr<Stream>> connect(std::size_t filter);
  void closed(FilterChain* chain);

  const FiltersConfig& config() const { return config_; }
  const Clock& clock() const { return clock_; }
  LogGate& failures() { return failures_; }
  LogRate& decisions() { return decisions_; }

 private:
  const FiltersConfig config_;
  Connector& connector_;
  const Clock& clock_;
  std::mutex mutex_;  // for the members below
  std::vector<TargetHealth> health_;
  std::unordered_set<FilterChain*> chains_;
  bool given_up_ = false;
  LogGate failures_;
  LogRate decisions_{100};  // lines a second
};

}  // namespace twinloft::lmtpd
