// What is said to Dovecot's service quota-status, and what it answers: Postfix's policy delegation protocol
// (SMTPD_POLICY_README), whose actions are those of access(5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/session/quota.h"

namespace twinloft::lmtpd {

// "ann@example.org" for a user's name, quoted where an address has to be. The error says why there is none
// for it.
Result<std::string> policy_recipient(std::string_view user);

std::string policy_request(std::string_view recipient, std::uint64_t bytes);

// The action of an answer, which ends with an empty line; empty: there is none in it.
std::string_view policy_action(std::string_view answer);

// Only what says that a mailbox is full refuses anything: 5.2.2 and 5.2.3, or a bare 552 or 452. The error
// (Errc::conflict) shows the action.
Result<Room> room_of_action(std::string_view action);

}  // namespace twinloft::lmtpd
