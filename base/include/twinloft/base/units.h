// Sizes and times as people write them, the same in every program and configuration file.
#pragma once

#include <cstdint>
#include <string_view>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"

namespace twinloft {

// A number, with a fraction or without, and a unit in any case: "4096", "4096B", "64KiB", "1.5MiB", "2G",
// "1GB". K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB are powers of 1000. Rounded to
// whole bytes. Errors: Errc::invalid, which says what was expected and quotes `text`. At most 2^62 bytes.
Result<std::uint64_t> parse_size(std::string_view text);

// What a number without a unit is.
enum class BareNumber { refused, seconds };

// "500us", "250ms", "30s", "5min" or "5m", "2h", "1d", with a fraction or without, in any case. "0" needs no
// unit. Errors: as above. At most 100 years.
Result<Duration> parse_duration(std::string_view text, BareNumber bare = BareNumber::refused);

}  // namespace twinloft
