#include "twinloft/lmtpd/milter/filter_spec.h"

#include <array>
#include <utility>

namespace twinloft::lmtpd::milter {

namespace {

constexpr std::array<std::pair<std::string_view, DefaultAction>, 4> names = {{
    {"tempfail", DefaultAction::tempfail},
    {"reject", DefaultAction::reject},
    {"accept", DefaultAction::accept},
    {"quarantine", DefaultAction::quarantine},
}};

}  // namespace

Result<DefaultAction> parse_default_action(std::string_view text) {
  for (const auto& [name, action] : names)
    if (name == text) return action;
  return fail(Errc::invalid, "\"{}\" is none of \"tempfail\", \"reject\", \"accept\" and \"quarantine\"",
              text);
}

std::string_view to_string(DefaultAction action) {
  for (const auto& [name, known] : names)
    if (known == action) return name;
  return "?";
}

}  // namespace twinloft::lmtpd::milter
