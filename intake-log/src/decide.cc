#include "twinloft/intake_log/decide.h"

#include "twinloft/base/check.h"

namespace twinloft::intake_log {

bool depends_on_presence(const EntryFacts& f) {
  return !f.retired && !f.cancelled && !f.on_same_mount;
}

Decision decide(const EntryFacts& f) {
  if (f.retired) return {Verdict::leave, Why::retired};
  if (f.cancelled) return {Verdict::leave, Why::cancelled};
  // Readers are at work on this mount: a file that is absent may have been read and deleted.
  if (f.on_same_mount && f.settled) return {Verdict::leave, Why::renamed_here};
  if (f.on_same_mount) return {Verdict::drop, Why::unanswered};
  switch (f.presence) {
    case Presence::unknown:
      break;
    case Presence::same:
      return {Verdict::leave, Why::present};
    case Presence::differs:
      return {Verdict::leave, Why::present, true};
    case Presence::absent:
      if (f.settled) return {Verdict::leave, Why::taken_away};
      return {Verdict::deliver, Why::missing};
  }
  check_failed("presence", __FILE__, __LINE__, "nobody has looked for the entry's file");
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::leave:
      return "leave";
    case Verdict::deliver:
      return "deliver";
    case Verdict::drop:
      return "drop";
  }
  return "";
}

std::string_view to_string(Why why) {
  switch (why) {
    case Why::retired:
      return "retired";
    case Why::cancelled:
      return "cancelled";
    case Why::renamed_here:
      return "renamed on this mount";
    case Why::unanswered:
      return "never acknowledged";
    case Why::present:
      return "present";
    case Why::taken_away:
      return "moved or deleted by a reader";
    case Why::missing:
      return "missing";
  }
  return "";
}

}  // namespace twinloft::intake_log
