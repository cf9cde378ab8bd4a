// Checks all rows of a user database that can be read completely (passwd-file), for `lmtpd check-config`.
#pragma once

#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/process/privileges.h"

namespace twinloft::lmtpd {

// Returns one warning for all lines whose users' mail would get 451, with the reasons, and one warning for
// all lines with unknown fields. `by_root`: as for check_delivery_to().
Result<std::vector<std::string>> review_rows(const Config& config, const UserSettings& users,
                                             const Identity& identity, bool by_root, const Clock& clock);

}  // namespace twinloft::lmtpd
