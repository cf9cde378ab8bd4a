// QuotaStatus: what mailboxes hold is asked of Dovecot, by its service quota-status. So any of its quota
// drivers counts, in its own way and with its own limits.
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
#include "twinloft/lmtpd/session/quota.h"

namespace twinloft::lmtpd {

struct QuotaStatusConfig {
  ConnectTarget target;                            // its timeout is that of an answer
  std::uint32_t connections_max = 8;               // at once; Dovecot has a process for each
  std::chrono::milliseconds answer_timeout{5000};  // for a connection, and then for the answer: each
  std::chrono::milliseconds queue_time{60'000};    // for one that is free, while others get their answers
  std::chrono::milliseconds idle_timeout{30'000};  // then a connection without use is not used again
};

// Thread-safe. Where no answer comes, nobody waits for one for a while (TargetHealth), and every question
// fails with Errc::unavailable or Errc::timeout.
class QuotaStatus final : public QuotaService {
 public:
  // The connector and the clock outlive it. `target` is the connector's.
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
  std::mutex mutex_;  // of what follows
  std::condition_variable freed_;
  std::uint32_t taken_ = 0;  // of connections_max
  std::list<Idle> idle_;     // the one used last is the first
  TargetHealth health_;
};

}  // namespace twinloft::lmtpd
