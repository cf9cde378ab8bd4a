// DeliveryService: the Deliverer of lmtpd. It chooses the agent, checks the spool, has the limits of a user's
// deliveries, and logs each delivery (by a separate thread, so that a slow log does not delay a reply).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/agents/external.h"
#include "twinloft/lmtpd/agents/spawner.h"
#include "twinloft/lmtpd/maildir/maildir.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

struct DeliveryConfig {
  std::string hostname;
  std::string default_agent = "maildir";  // "maildir" or the name of an agent of the spawner
  std::uint32_t per_user_max = 10;        // deliveries to a user at a time; the others wait
  SpoolConfig spool;
  MaildirConfig maildir;    // its hostname is taken from above
  ExternalConfig external;  // likewise
};

// The user's agent: "maildir", or the name of an agent of the spawner.
inline const std::string& agent_of(const DeliveryConfig& config, const User& user) {
  return user.agent.empty() ? config.default_agent : user.agent;
}

class DeliveryService final : public Deliverer {
 public:
  // spawner: null if only the built-in agent is used. ops: null for the operating system. All pointers and
  // the clock must outlive the service. Starts a thread, so call it after Spawner::start() and the last fork.
  // Errors: an unknown default agent, a wrong spool root.
  static Result<std::unique_ptr<DeliveryService>> create(DeliveryConfig config, const Spawner* spawner,
                                                         const Clock& clock, FileOps* ops = nullptr);
  ~DeliveryService() override;

  DeliveryLimits limits(const User& user) const override;
  bool may_refuse(const User& user) const override;
  std::optional<Reply> refusal(const User& user, const std::string& detail, std::uint64_t size) override;
  DeliveryOutcome deliver(const Envelope& envelope, const Recipient& recipient,
                          const MessageBody& body) override;
  std::string group_of(const User& user) const override;
  std::vector<DeliveryOutcome> deliver_group(const Envelope& envelope,
                                             std::span<const std::size_t> recipients, const MessageBody& body,
                                             const GivenUp& given_up) override;

  // Checks that the spool can be opened now, for check-config, the start and health checks.
  Status check_spool();

 private:
  struct Impl;
  explicit DeliveryService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
