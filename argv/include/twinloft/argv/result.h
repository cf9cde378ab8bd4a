// Converts the library's outcomes to twinloft::Result, for this project. Not installed.
#pragma once

#include <string_view>
#include <utility>

#include "twinloft/argv/argv.h"
#include "twinloft/base/result.h"

namespace twinloft::argv {

// Errors: Errc::invalid with "<where>: column 14: ..." and the caret. where: the name of the setting, such as
// "agent.dovecot.command".
inline Result<Template> parse_template(std::string_view where, std::string_view text,
                                       const ParseOptions& options = {}) {
  auto parsed = Template::parse(text, options);
  if (!parsed) return fail(Errc::invalid, "{}: {}", where, parsed.error().rendered());
  return std::move(*parsed);
}

inline Errc errc_of(ExpandError::Code code) {
  switch (code) {
    case ExpandError::Code::missing_value:
      return Errc::internal;
    case ExpandError::Code::limit:
      return Errc::exhausted;
    case ExpandError::Code::forbidden_byte:
    case ExpandError::Code::leading_dash:
    case ExpandError::Code::recipients:
      break;
  }
  return Errc::invalid;
}

inline Result<Template::Arguments> to_result(Outcome<Template::Arguments, ExpandError> expanded) {
  if (!expanded) return fail(errc_of(expanded.error().code), "{}", expanded.error().message);
  return std::move(*expanded);
}

}  // namespace twinloft::argv
