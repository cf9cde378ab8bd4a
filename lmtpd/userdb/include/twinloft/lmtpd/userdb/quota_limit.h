// The fields of a row with the user's quota.
#pragma once

#include <cstdint>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

// The limit in bytes from "1073741824", "1G" or "500M". B, K, M, G, T in either case are powers of 1024.
// unit: of a number without a unit, in bytes. 0: no limit. Errors: Errc::invalid.
Result<std::uint64_t> parse_quota_bytes(std::string_view text, std::uint64_t unit = 1);
// A number of messages. 0: no limit.
Result<std::uint64_t> parse_quota_messages(std::string_view text);

// A rule of Dovecot 2.3 for all folders: "*:storage=1G:messages=1000" or "*:bytes=1000000". Storage without a
// unit is in KiB. Errors: also a rule for one folder, and a rule relative to another rule.
Result<QuotaLimit> parse_quota_rule(std::string_view text);

}  // namespace twinloft::lmtpd
