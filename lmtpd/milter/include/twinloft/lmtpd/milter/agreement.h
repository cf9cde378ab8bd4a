// The negotiation with a filter (SMFIC_OPTNEG): what it may do, which events it wants, and which macros.
#pragma once

#include <cstdint>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/milter/events.h"
#include "twinloft/lmtpd/milter/packet.h"

namespace twinloft::lmtpd::milter {

struct Agreement {
  std::uint32_t version = 0;
  std::uint32_t rights = 0;  // may::*
  std::uint32_t wishes = 0;  // wish::*
  ChosenMacros macros;
  bool may(std::uint32_t right) const { return (rights & right) != 0; }
  bool wants(std::uint32_t flag) const { return (wishes & flag) != 0; }
};

// The packet with all that this side can do.
std::string offer();

// Errors (Errc::invalid): another kind of packet, a version that was not offered, flags that were not
// offered, or missing data.
Result<Agreement> parse_agreement(const Packet& packet);

// Whether the filter does not get the event.
bool is_unwanted(const Agreement& agreement, const Event& event);
// Whether the filter gets the event, and does not answer it.
bool is_silent(const Agreement& agreement, const Event& event);

}  // namespace twinloft::lmtpd::milter
