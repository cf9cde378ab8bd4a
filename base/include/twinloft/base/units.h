// Sizes and times as text, in the same form in every option and configuration file.
#pragma once

#include <cstdint>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"

namespace twinloft {

// A size in bytes. The text is a number, possibly with a fraction, and a unit in any case: "4096", "4096B",
// "64KiB", "1.5MiB", "2G", "1GB". K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB are
// powers of 1000. The result is rounded to whole bytes, and at most 2^62. Errors: Errc::invalid, with the
// form that was expected and `text`.
Result<std::uint64_t> parse_size(std::string_view text);

// The meaning of a number without a unit.
enum class BareNumber { refused, seconds };

// A time: "500us", "250ms", "30s", "5min" or "5m", "2h", "1d", possibly with a fraction, in any case. "0"
// needs no unit. At most 100 years. Errors: as for parse_size().
Result<Duration> parse_duration(std::string_view text, BareNumber bare = BareNumber::refused);

}  // namespace twinloft
