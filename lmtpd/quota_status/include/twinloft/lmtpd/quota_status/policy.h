// The requests to Dovecot's service quota-status, and its answers: Postfix's policy delegation protocol
// (SMTPD_POLICY_README), with the actions of access(5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/policy/quota.h"

namespace twinloft::lmtpd {

// The user's name as an address, such as "ann@example.org", with quotes if it needs them. Errors: the name
// cannot be an address.
// delimiters: Dovecot's recipient_delimiter. It splits an address there, so a name with such a character
// would be that of another user: Errc::invalid.
Result<std::string> policy_recipient(std::string_view user, std::string_view delimiters);

// The request: whether a message of `bytes` fits the recipient's mailbox.
std::string policy_request(std::string_view recipient, std::uint64_t bytes);

// The action of a complete answer, which ends with an empty line. Empty: the answer has no action.
std::string_view policy_action(std::string_view answer);

// Whether there is room. "No room" needs a status that means a full mailbox: 5.2.2, 5.2.3, or 552 or 452
// without an enhanced status. Errors: Errc::conflict with any other action.
Result<Room> room_of_action(std::string_view action);

}  // namespace twinloft::lmtpd
