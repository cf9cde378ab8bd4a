// What `lmtpd check-config` says of the rows of a user database that can be read from end to end
// (passwd-file).
#pragma once

#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/config/config.h"
#include "twinloft/lmtpd/process/privileges.h"

namespace twinloft::lmtpd {

// One warning for all lines whose users' mail would get 451, and why, and one for those with fields that are
// not known. `by_root`: as for check_delivery_to().
Result<std::vector<std::string>> review_rows(const Config& config, const UserSettings& users,
                                             const Identity& identity, bool by_root, const Clock& clock);

}  // namespace twinloft::lmtpd
