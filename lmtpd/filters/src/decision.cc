#include "decision.h"

#include "twinloft/lmtpd/session/actions.h"

namespace twinloft::lmtpd {

namespace {

constexpr int closes = 421;

// RFC 2034 wants a status in each reply. 7.1: the delivery is not authorized (RFC 3463 section 3.8).
Decision refusal_of(const milter::FilterReply& r) {
  std::string enhanced = !r.enhanced.empty() ? r.enhanced : r.code >= 500 ? "5.7.1" : "4.7.1";
  return Refusal{make_reply_of_lines(r.code, enhanced, r.lines), r.code == closes};
}

}  // namespace

Decision decision_of(const milter::Verdict& verdict) {
  return std::visit(Visitor{[](const milter::Continue&) -> Decision { return Pass{}; },
                            [](const milter::Accept&) -> Decision { return Pass{}; },
                            [](const milter::Reject&) -> Decision {
                              return Refusal{{550, "5.7.1", "Refused by a filter"}};
                            },
                            [](const milter::Tempfail&) -> Decision {
                              return Refusal{{451, "4.7.1", "A filter cannot take it now, try again later"}};
                            },
                            [](const milter::Discard&) -> Decision { return Discarding{}; },
                            [](const milter::FilterReply& r) { return refusal_of(r); },
                            [](const milter::EndConnection&) -> Decision {
                              return Refusal{{closes, "4.7.0", "A filter ends this connection"}, true};
                            }},
                    verdict);
}

Decision decision_of(milter::DefaultAction action, const std::string& what) {
  switch (action) {
    case milter::DefaultAction::tempfail:
      return Refusal{{451, "4.7.1", "A filter does not answer, try again later"}};
    case milter::DefaultAction::reject:
      return Refusal{{550, "5.7.1", "A filter does not answer"}};
    case milter::DefaultAction::accept:
      return Pass{};
    case milter::DefaultAction::quarantine:
      return Quarantining{what};
  }
  return Refusal{{451, "4.3.0", "Internal error, try again later"}};
}

const char* name_of(const Decision& decision) {
  constexpr const char* names[] = {"pass", "refuse", "discard", "quarantine"};
  return names[decision.index()];
}

}  // namespace twinloft::lmtpd
