// The smallest configurations, for tests of single sections.
#pragma once

#include <string_view>

namespace twinloft::lmtpd::test {

// To follow a [[listen]].
inline constexpr std::string_view users_and_spool = R"([users]
driver = "static"
accept_all = true
home = "/srv/mail/%user%"
[spool]
path = "/srv/mail"
require_marker = false
)";

}  // namespace twinloft::lmtpd::test
