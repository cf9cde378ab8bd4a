// The macros' values for one delivery by an external agent.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

std::vector<std::pair<std::string, std::string>> agent_values(const Envelope& envelope,
                                                              const Recipient& recipient, std::uint64_t size);

}  // namespace twinloft::lmtpd
