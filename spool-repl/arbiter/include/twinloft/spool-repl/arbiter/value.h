// The arbiter's value as text, in etcd or in Pacemaker's cluster information base.
//
// The text is JSON in a canonical form, so that a compare-and-swap can compare bytes
// (docs/formats/arbiter.md). The decoder accepts this form alone, of this volume, in a known version.
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/ids.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/core/effects.h"

namespace twinloft::repl::arbiter {

inline constexpr std::uint64_t value_version = 1;
inline constexpr std::size_t value_bytes_max = 1024;

std::string encode_value(const Uuid& volume, const core::EpochValue& value);
// Errors: Errc::corrupt (not such a value, or another version), Errc::conflict (of another volume).
Result<core::EpochValue> decode_value(const Uuid& volume, std::string_view text);

}  // namespace twinloft::repl::arbiter
