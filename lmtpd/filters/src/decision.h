// What follows from a filter's verdict, or from its failure.
#pragma once

#include <string>
#include <variant>

#include "twinloft/lmtpd/milter/answers.h"
#include "twinloft/lmtpd/milter/filter_spec.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

struct Pass {};  // the next filter is asked
struct Refusal {
  Reply reply;
  bool ends_connection = false;
};
struct Discarding {};  // no filter hears any more of the message
struct Quarantining {  // likewise; the message goes to the mailbox for such messages
  std::string reason;
};
using Decision = std::variant<Pass, Refusal, Discarding, Quarantining>;

Decision decision_of(const milter::Verdict& verdict);
// what: of the failure, for the mailbox of quarantined messages.
Decision decision_of(milter::DefaultAction action, const std::string& what);

// For a log line: "pass", "refuse", "discard", "quarantine".
const char* name_of(const Decision& decision);

}  // namespace twinloft::lmtpd
