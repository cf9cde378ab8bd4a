// SpoolMailboxes: the local mailboxes for policy/. Only mailboxes of the built-in agent have limits here.
// Other agents decide at the delivery.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/delivery/config.h"
#include "twinloft/lmtpd/maildir/maildir.h"
#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

class SpoolMailboxes final : public Mailboxes {
 public:
  // The references must outlive this object.
  SpoolMailboxes(const DeliveryConfig& config, Spool& spool, MaildirAgent& maildir)
      : config_(config), spool_(spool), maildir_(maildir) {}

  bool has_limits(const User& user) const override;
  // A failed quota check is logged. A missing spool is not logged here, because each delivery logs it.
  MailboxState look(const User& user, const std::string& detail, std::uint64_t size) override;
  std::optional<MailboxState> look_now(const User& user, std::uint64_t size) override;

 private:
  const DeliveryConfig& config_;
  Spool& spool_;
  MaildirAgent& maildir_;
};

// The mailboxes for a program that delivers nothing, with a spool and an agent of their own. The clock, and
// the quota service of the configuration, must outlive them. Errors: those of Spool::create().
Result<std::unique_ptr<Mailboxes>> open_mailboxes(const DeliveryConfig& config, const Clock& clock);

}  // namespace twinloft::lmtpd
