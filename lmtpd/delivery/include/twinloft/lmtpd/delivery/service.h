// DeliveryService: the Deliverer that lmtpd runs. Picks the agent, checks the spool, says what bounds a
// user's deliveries, writes one log line per delivery (by a thread of its own: a slow log never delays a
// reply).
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
  std::uint32_t per_user_max = 10;        // deliveries to one user at once; the others wait
  SpoolConfig spool;
  MaildirConfig maildir;    // its hostname is taken from above
  ExternalConfig external;  // likewise
};

// The agent that delivers to that user: "maildir", or the name of one of the spawner's.
inline const std::string& agent_of(const DeliveryConfig& config, const User& user) {
  return user.agent.empty() ? config.default_agent : user.agent;
}

class DeliveryService final : public Deliverer {
 public:
  // `spawner` may be null where only the built-in agent is used; it and the clock outlive the service. Starts
  // a thread: call it after Spawner::start and after any fork. Errors: an unknown default agent, a bad spool
  // root. `ops` null: the operating system.
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

  // Whether the spool is there now: for check-config, start-up messages and health checks.
  Status check_spool();

 private:
  struct Impl;
  explicit DeliveryService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
