// What a configured way of delivery (an agent, a next hop) takes: what policy/ asks of it before a message is
// sent.
#pragma once

#include <optional>

#include "twinloft/lmtpd/agents/agent_refusal.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Immutable: any thread may ask. The configuration outlives it.
class WaysOfDelivery {
 public:
  explicit WaysOfDelivery(const Config& config) : config_(config), agents_(config.agents) {}

  // Whether that user's address may hold UTF-8. The built-in agent takes it, and an external one or a next
  // hop whose section says so.
  bool takes_utf8(const User& user) const;
  // Why the recipient's agent would not be run for that sender and recipient, for good (AgentRefusals).
  std::optional<Reply> refusal(const Envelope& envelope, const Recipient& recipient) const;

 private:
  const Config& config_;
  const AgentRefusals agents_;
};

}  // namespace twinloft::lmtpd
