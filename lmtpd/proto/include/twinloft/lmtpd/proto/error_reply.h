// The mapping from errors to replies. A reply contains no path of this machine; the log contains the paths.
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

// The reply for an error of a delivery or of the spool. ENOSPC: 452 4.3.1. EDQUOT: 452 4.2.2. No descriptors
// or memory: 451 4.3.2. Denied, or outside the spool: 451 4.3.5. Any other error: 451 4.3.0.
Reply reply_of_error(const Error& error);

// The reply for a message that could not be stored while it arrived; no mailbox is at fault. No descriptors
// or memory: 451 4.3.2. Errc::exhausted, such as a full disk: 452 4.3.1. Any other error: 451 4.3.0.
Reply reply_of_unkept(const Error& error);

// Printable text of at most 400 bytes. Other bytes become "?"; blanks at both ends are removed.
std::string clean_reply_text(std::string_view text);

}  // namespace twinloft::lmtpd
