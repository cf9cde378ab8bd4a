// One mapping from failures to replies. A reply never names local paths; the log does.
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

// ENOSPC 452 4.3.1 · EDQUOT 452 4.2.2 · denied, outside the spool 451 4.3.5 · everything else 451 4.3.0.
Reply reply_of_error(const Error& error);

// Printable text of at most 400 bytes: other bytes become "?", blanks at both ends go.
std::string clean_reply_text(std::string_view text);

}  // namespace twinloft::lmtpd
