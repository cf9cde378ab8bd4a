// A next hop: its connections in use, its idle connections for later messages, and whether it is reachable.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dialogue.h"
#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/connect/connector.h"
#include "twinloft/lmtpd/connect/target_health.h"
#include "twinloft/lmtpd/route/router.h"

namespace twinloft::lmtpd {

// Thread-safe.
class Hop {
 public:
  // The references must outlive the hop.
  Hop(RouterConfig::Hop config, const RouterConfig& all, Connector& connector, const Clock& clock)
      : config_(std::move(config)), all_(all), connector_(connector), clock_(clock) {
    delimiter_ = config_.spec.detail_delimiter.value_or(all.detail_delimiter);
  }
  ~Hop();

  const NextHopSpec& spec() const { return config_.spec; }
  struct Outcome {
    Reply reply;
    std::string problem;  // for the log
  };
  // In as many transactions as recipients_max requires. All of them, with the wait for a connection, end
  // within data_timeout. Only making a connection may take longer, by connect_timeout.
  std::vector<Outcome> deliver(const Envelope& envelope, std::span<const std::size_t> recipients,
                               const MessageBody& body, const std::string& header, const GivenUp& given_up);
  void close_idle();
  void give_up();

 private:
  struct Idle {
    std::unique_ptr<Dialogue> dialogue;
    Instant since{};
  };
  struct InUse;
  struct Slot;
  std::unique_ptr<Dialogue> take_idle(const Envelope& envelope);
  Result<std::unique_ptr<Dialogue>> open(Instant latest);
  Result<std::unique_ptr<Dialogue>> connect(Instant latest);
  Result<std::unique_ptr<Dialogue>> connect_safely(std::list<Idle> instead_of, Instant latest);
  void put_back(std::unique_ptr<Dialogue> dialogue);
  std::list<Idle> take_surplus(std::size_t in_use);
  static void quit(std::list<Idle> idle);
  Handed hand_over_by(std::unique_ptr<Dialogue> dialogue, const Envelope& envelope,
                      std::span<const std::size_t> recipients, const MessageBody& body,
                      const std::string& header);
  Handed hand_over(const Envelope& envelope, std::span<const std::size_t> recipients, const MessageBody& body,
                   const std::string& header, Instant latest);

  const RouterConfig::Hop config_;
  const RouterConfig& all_;
  std::string delimiter_;  // never changed
  Connector& connector_;
  const Clock& clock_;
  std::mutex mutex_;      // of the members below
  std::list<Idle> idle_;  // the last used first
  std::vector<Dialogue*> in_use_;
  std::uint32_t taken_ = 0;  // deliveries in flight
  TargetHealth health_;
  bool given_up_ = false;
  std::condition_variable opened_;
  std::uint32_t opening_ = 0;
};

}  // namespace twinloft::lmtpd
