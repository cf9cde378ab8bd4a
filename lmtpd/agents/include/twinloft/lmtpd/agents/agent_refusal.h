// What an agent's command template refuses, said at RCPT: before the message is sent, and for good. The
// spawner would refuse the same values at the delivery (docs/argv.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/argv/argv.h"
#include "twinloft/lmtpd/agents/agent_spec.h"
#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Immutable: any thread may ask.
class AgentRefusals {
 public:
  explicit AgentRefusals(const std::vector<AgentSpec>& agents);
  // 553 5.1.7 for a sender, 550 5.1.3 for a recipient, 550 5.7.1 for ENVID. nullopt: the agent
  // may be run, or it is not its client's fault that it may not.
  std::optional<Reply> refusal(std::string_view agent, const Envelope& envelope,
                               const Recipient& recipient) const;

 private:
  std::map<std::string, argv::Template, std::less<>> commands_;
};

}  // namespace twinloft::lmtpd
