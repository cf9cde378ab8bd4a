// Refuses at RCPT, permanently, the values that an agent's command template refuses. Otherwise the spawner
// would refuse them at the delivery (docs/argv.md).
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

// Immutable, and so thread-safe.
class AgentRefusals {
 public:
  explicit AgentRefusals(const std::vector<AgentSpec>& agents);
  // The reply to a value that the template refuses: 553 5.1.7 for the sender, 550 5.1.3 for the recipient,
  // 550 5.7.1 for ENVID. nullopt: the agent may run, or the reason is not a value of the client.
  std::optional<Reply> refusal(std::string_view agent, const Envelope& envelope,
                               const Recipient& recipient) const;

 private:
  std::map<std::string, argv::Template, std::less<>> commands_;
};

}  // namespace twinloft::lmtpd
