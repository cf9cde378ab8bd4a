// External agents: passes the message by a descriptor, lets the spawner run the agent, and converts its
// result to a reply.
#pragma once

#include <memory>
#include <string>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/agents/spawner.h"
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/spool/foreign_writes.h"
#include "twinloft/lmtpd/spool/spool.h"

namespace twinloft::lmtpd {

struct ExternalConfig {
  std::string hostname;
  std::uint64_t memory_bytes_max = 16u << 20;  // a larger message is in an unlinked file in `temporary`
  std::shared_ptr<MemoryBudget> memory;        // also a message without room in this budget; null: no limit
  std::shared_ptr<MemoryBudget> disk;          // of these files. Without room: 452 4.3.1. null: no limit
  std::string temporary = "/var/tmp";          // not on the spool, since its content need not be replicated
  std::uint32_t received_max = 100;
};

// The reply to a run before the sync: by the exit map, and the code in the output line.
Reply reply_of_run(const AgentSpec& spec, const RunResult& result, bool stdin_was_read);

class ExternalAgents {
 public:
  ExternalAgents(ExternalConfig config, const Spawner& spawner, const Spool& spool, ForeignWrites& writes,
                 const Clock& clock)
      : config_(std::move(config)), spawner_(spawner), spool_(spool), writes_(writes), clock_(clock) {}

  // Thread-safe. 2xx only after the spool was synced, or if the agent has `syncs`.
  DeliveryOutcome deliver(std::uint32_t agent, const SpoolHandle& handle, const Envelope& envelope,
                          const Recipient& recipient, const MessageBody& body);

 private:
  ExternalConfig config_;
  const Spawner& spawner_;
  const Spool& spool_;
  ForeignWrites& writes_;
  const Clock& clock_;
};

}  // namespace twinloft::lmtpd
