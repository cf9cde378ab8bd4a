// SpoolMailboxes: the mailboxes that are delivered to here, as policy/ looks at them. Only the built-in
// agent's have limits: the others decide at the delivery.
#pragma once

#include <cstdint>
#include <string>

#include "twinloft/lmtpd/delivery/config.h"
#include "twinloft/lmtpd/maildir/maildir.h"
#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

class SpoolMailboxes final : public Mailboxes {
 public:
  // The references outlive it.
  SpoolMailboxes(const DeliveryConfig& config, Spool& spool, MaildirAgent& maildir)
      : config_(config), spool_(spool), maildir_(maildir) {}

  bool has_limits(const User& user) const override;
  // What cannot be found out is logged. A spool that is not there is not: each delivery says so.
  MailboxState look(const User& user, const std::string& detail, std::uint64_t size) override;

 private:
  const DeliveryConfig& config_;
  Spool& spool_;
  MaildirAgent& maildir_;
};

}  // namespace twinloft::lmtpd
