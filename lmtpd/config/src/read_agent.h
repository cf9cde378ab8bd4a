// [agent.<name>]: one external agent.
#pragma once

#include <string>
#include <vector>

#include "toml_table.h"
#include "twinloft/lmtpd/agents/agent_spec.h"

namespace twinloft::lmtpd {

AgentSpec read_agent(const TomlTable& table, std::string name, std::vector<std::string>& warnings);

}  // namespace twinloft::lmtpd
