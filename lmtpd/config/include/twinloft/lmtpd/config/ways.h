// What a configured way of delivery (an agent, a next hop) accepts. policy/ checks this at RCPT, before a
// message is sent.
#pragma once

#include <memory>
#include <optional>

#include "twinloft/lmtpd/agents/agent_refusal.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/policy/recipient.h"
#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Immutable, and so thread-safe. The configuration must outlive it.
class WaysOfDelivery {
 public:
  explicit WaysOfDelivery(const Config& config) : config_(config), agents_(config.agents) {}

  // Whether the address of this user may have UTF-8. The built-in agent accepts UTF-8. External agents and
  // next hops accept it if their section has `smtputf8`. If a Sieve script runs for all users, their agent
  // counts.
  bool takes_utf8(const User& user) const;
  // The permanent refusal of this sender and recipient by the recipient's agent (AgentRefusals).
  std::optional<Reply> refusal(const Envelope& envelope, const Recipient& recipient) const;

 private:
  std::optional<Reply> refusal_by_script(const Envelope& envelope, const Recipient& recipient) const;
  const Config& config_;
  const AgentRefusals agents_;
};

// The rules for recipients, without what needs the spool. `ways` belongs to the rules too.
RecipientRules recipient_rules(const Config& config, std::shared_ptr<const WaysOfDelivery> ways);

}  // namespace twinloft::lmtpd
