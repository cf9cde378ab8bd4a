// DeliveryService: the Deliverer of lmtpd. It chooses the agent, checks the spool, gives the limits of a
// user's deliveries, and logs each delivery. A separate thread writes the log, so that a slow log delays no
// reply.
#pragma once

#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/agents/spawner.h"
#include "twinloft/lmtpd/delivery/config.h"
#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/spool/foreign_writes.h"

namespace twinloft::lmtpd {

class DeliveryService final : public Deliverer {
 public:
  // spawner: null if only the built-in agent is used. ops: null for the operating system. All pointers and
  // the clock must outlive the service. Starts a thread, so call it after Spawner::start() and the last fork.
  // Errors: an unknown default agent, a wrong spool root.
  static Result<std::unique_ptr<DeliveryService>> create(DeliveryConfig config, const Spawner* spawner,
                                                         const Clock& clock, FileOps* ops = nullptr);
  ~DeliveryService() override;

  DeliveryLimits limits(const User& user) const override;
  DeliveryOutcome deliver(const Envelope& envelope, const Recipient& recipient,
                          const MessageBody& body) override;
  std::string group_of(const User& user) const override;
  std::vector<DeliveryOutcome> deliver_group(const Envelope& envelope,
                                             std::span<const std::size_t> recipients, const MessageBody& body,
                                             const GivenUp& given_up) override;

  // Whether mailboxes have room. Lives as long as the service.
  Mailboxes& mailboxes();

  // For another program that writes to the spool: Dovecot's LMTP, as a next hop. Lives as long as the
  // service.
  ForeignWrites& foreign_writes();

  // Gives up the intake log, if there is one, and leaves it empty. Another process may use it then. Later
  // messages are delivered without it. Does not block.
  void leave_intake_log();
  void settle_lines();  // as DeliveryLines::settle()

  // Checks that the spool can be opened now, for check-config, the start and health checks.
  Status check_spool();

 private:
  struct Impl;
  explicit DeliveryService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
