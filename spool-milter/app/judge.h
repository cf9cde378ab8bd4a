// Joins the policy to the facts of this machine: the user database, the mailboxes, the spool.
#pragma once

#include <memory>
#include <optional>

#include "timed_calls.h"
#include "twinloft/base/clock.h"
#include "twinloft/base/log_gate.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/delivery/spool_watch.h"
#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/policy/user.h"
#include "twinloft/spool-milter/core/answer.h"

namespace twinloft::spool_milter {

// Where the facts come from. Shared with calls that take too long.
struct Sources {
  std::shared_ptr<lmtpd::UserDb> users;
  std::shared_ptr<lmtpd::Mailboxes> mailboxes;  // null: no spool, or no quota
  std::shared_ptr<lmtpd::SpoolWatch> watch;     // null: no spool
};

class Judge {
 public:
  // The configuration, with its [spool_milter], and the clock outlive this object.
  Judge(const lmtpd::Config& config, Sources sources, const Clock& clock);

  // nullopt: continue. Thread-safe. Blocks at most for about the configured timeout.
  std::optional<lmtpd::Reply> answer(const Sender& sender, const AskedRecipient& recipient);

 private:
  std::optional<lmtpd::LookupResult> look_up(const lmtpd::LookupRequest& request, TimedCalls::Until until);
  std::optional<lmtpd::MailboxState> look(const lmtpd::MailboxQuestion& question, TimedCalls::Until until);

  const Sources sources_;
  const Clock& clock_;
  const std::chrono::milliseconds timeout_;
  TimedCalls lookups_, looks_;
  LogGate failed_lookups_;
  Rules rules_;
  Facts facts_;  // without the two that block
};

}  // namespace twinloft::spool_milter
