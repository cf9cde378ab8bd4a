// The user's name in RCPT of Dovecot's LMTP. Dovecot ends the name at the first character of its
// recipient_delimiter, and delivers to the user whose name comes before it. No I/O.
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

// delimiters: Dovecot's recipient_delimiter. Errors: Errc::invalid: the local part has such a character, so
// the mail would go to another user.
Status check_lmtp_name(std::string_view user, std::string_view delimiters);

// What stands between the name and the detail: ours, if Dovecot splits there; otherwise its first delimiter.
// Empty: Dovecot takes no detail.
std::string lmtp_delimiter(std::string_view ours, std::string_view delimiters);

}  // namespace twinloft::lmtpd
