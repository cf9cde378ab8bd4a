// What a session asks its owner, and how the owner answers.
//
// A command whose reply needs what the session does not know asks one question, with a number of its own, and
// the session waits: it looks at no further input until Session::answer() gets that number. An answer to
// another number is late, and is ignored. The client may have left, or the server may be leaving.
//
// A new kind of question is one alternative of each of the two lists, and one of Session's list of what it
// continues with (Session::Subject). Questions and answers are matched by their types, so a kind that nobody
// carries out does not compile.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

// Of one session: they count from 1, and none is used twice.
using QuestionId = std::uint64_t;

// Whether the mailbox of a user who has limits takes a message.
struct MailboxQuestion {
  User user;
  std::string detail;
  std::uint64_t size = 0;  // of the message, as MAIL has announced it; 0: it has not
};

// Who a recipient is; then, where the verdict is LookAtMailbox, the state of the mailbox.
using Question = std::variant<LookupRequest, MailboxQuestion>;
using Answer = std::variant<LookupResult, MailboxState>;

}  // namespace twinloft::lmtpd
