// What a session asks its owner, and how the owner answers.
//
// A command may need facts that the session does not have. The session then asks one numbered question, and
// processes no input until Session::answer() gets this number. An answer with another number is late, and is
// ignored: the client may have disconnected, or the server may be stopping.
//
// A new kind of question needs an alternative in Question, in Answer and in Session::Subject. Questions and
// answers are matched by type, so an unhandled kind does not compile.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/policy/recipient.h"
#include "twinloft/lmtpd/policy/user.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

// Numbers count from 1 in each session. No number is used twice.
using QuestionId = std::uint64_t;

// At RCPT, first: who the recipient is. Then, if the verdict is LookAtMailbox: the state of the mailbox. At
// MAIL, RCPT and DATA, last: what the filters say.
using Question = std::variant<LookupRequest, MailboxQuestion, FilterCommand>;
using Answer = std::variant<LookupResult, MailboxState, FilterVerdict>;

}  // namespace twinloft::lmtpd
