// QuotaStatus: asks Dovecot's service quota-status whether a message fits a mailbox. Dovecot counts with its
// own quota driver and its own limits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/connect/stream.h"
#include "twinloft/lmtpd/connect/target_health.h"
#include "twinloft/lmtpd/policy/quota.h"

namespace twinloft::lmtpd {

struct QuotaStatusConfig {
  ConnectTarget target;                            // with answer_timeout as its timeout
  std::uint32_t connections_max = 8;               // at a time; Dovecot has a process for each
  std::chrono::milliseconds answer_timeout{5000};  // for connecting, and again for the answer
  std::chrono::milliseconds queue_time{60'000};    // the longest wait for a free connection
  std::chrono::milliseconds idle_timeout{30'000};  // an older idle connection is not used again
  std::string delimiters = "+";                    // Dovecot's recipient_delimiter
};

// Thread-safe. Errors: Errc::unavailable, Errc::timeout, Errc::invalid (see policy_recipient()). After a
// failed connection, or several late answers in a row, requests fail at once for a while (TargetHealth).
class QuotaStatus final : public QuotaService {
 public:
  // The connector and the clock outlive this object. target: the connector's index.
  QuotaStatus(QuotaStatusConfig config, Connector& connector, std::size_t target, const Clock& clock)
      : config_(std::move(config)), connector_(connector), target_(target), clock_(clock) {}

  Result<Room> room(const User& user, std::uint64_t bytes) override;

 private:
  struct Slot;
  struct Idle {
    std::unique_ptr<Stream> stream;
    Instant since{};
  };
  Result<std::string> ask(const std::string& request);
  Result<std::string> ask_by(std::unique_ptr<Stream> stream, const std::string& request);
  Result<std::string> ask_safely(const std::string& request);
  Status may_try();
  void tried(const Status& how);
  std::unique_ptr<Stream> take_idle();

  const QuotaStatusConfig config_;
  Connector& connector_;
  const std::size_t target_;
  const Clock& clock_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable freed_;
  std::uint32_t taken_ = 0;  // connections in use
  std::list<Idle> idle_;     // most recently used first
  TargetHealth health_;
  std::uint32_t late_ = 0;  // answers in a row that did not come in time
};

}  // namespace twinloft::lmtpd
