// Messages between the server process and the user process: one packet each, little-endian. Each field has
// its length before it, which is limited. Neither process trusts the other: the receiver of a user checks it
// again (check.h).
#pragma once

#include <cstddef>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

// Errors: Errc::exhausted if a field exceeds its limit.
Result<std::vector<std::byte>> encode_key(const UserKey& key);
Result<UserKey> decode_key(ByteSpan packet);
// A result with a field that is too long is replaced by an error.
std::vector<std::byte> encode_found(const FindResult& found);
// Errors of the outer result: Errc::invalid (not an answer). The inner result is the answer.
Result<FindResult> decode_found(ByteSpan packet);

}  // namespace twinloft::lmtpd
