// Between the process that serves and the one that asks the user database: one packet each, little-endian,
// every field with its length before it and a bound on that. Neither trusts the other: a user is checked
// again by who gets it (check.h).
#pragma once

#include <cstddef>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/lmtpd/userdb/source.h"

namespace twinloft::lmtpd {

// Errc::exhausted where a field is beyond its bound.
Result<std::vector<std::byte>> encode_key(const UserKey& key);
Result<UserKey> decode_key(ByteSpan packet);
// What is too long becomes an error that says so.
std::vector<std::byte> encode_found(const FindResult& found);
// Errc::invalid: it is no answer. The inner one is the answer.
Result<FindResult> decode_found(ByteSpan packet);

}  // namespace twinloft::lmtpd
