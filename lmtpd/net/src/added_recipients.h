// Recipients that filters add to a message: who they are, by the same rules as at RCPT.
#pragma once

#include <expected>
#include <vector>

#include "hub.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

// May block, but begins no look-up after limits.queue_time. Errors: the reply for all recipients of the
// message, 4xx: an added recipient is unknown, has a next hop, or cannot have mail now.
std::expected<std::vector<Recipient>, Reply> find_added(Hub& hub, const FilteredMessage::Passed& message);

}  // namespace twinloft::lmtpd
