// The arbiter's value as text: what is kept in etcd, or in Pacemaker's cluster information base.
//
// JSON in one canonical form, so that a compare-and-swap may compare bytes: docs/formats/arbiter.md describes
// it. The decoder takes nothing but that form, of this volume, in a version that it knows.
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
// Errc::corrupt: not such a value, or another version. Errc::conflict: of another volume.
Result<core::EpochValue> decode_value(const Uuid& volume, std::string_view text);

}  // namespace twinloft::repl::arbiter
