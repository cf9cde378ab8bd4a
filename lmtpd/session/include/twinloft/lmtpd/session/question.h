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
#include <variant>

#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// Of one session: they count from 1, and none is used twice.
using QuestionId = std::uint64_t;

using Question = std::variant<LookupRequest>;  // who a recipient is
using Answer = std::variant<LookupResult>;

}  // namespace twinloft::lmtpd
