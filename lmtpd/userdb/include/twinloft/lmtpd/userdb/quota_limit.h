// What a row says of its user's quota.
#pragma once

#include <cstdint>
#include <string_view>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// "1073741824", "1G", "500M": in bytes, or with a unit of 1024 and its powers (B, K, M, G, T in either case).
// 0: no limit.
Result<std::uint64_t> parse_quota_bytes(std::string_view text, std::uint64_t unit = 1);
Result<std::uint64_t> parse_quota_messages(std::string_view text);

// A rule of Dovecot 2.3 for all folders: "*:storage=1G:messages=1000", "*:bytes=1000000"; storage is in KiB
// where it has no unit. Rules for one folder, and those relative to another one, are not read: errors.
Result<QuotaLimit> parse_quota_rule(std::string_view text);

}  // namespace twinloft::lmtpd
