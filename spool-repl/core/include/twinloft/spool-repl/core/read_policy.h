// Which replica a primary reads from. The names are DRBD's (read-balancing).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::repl::core {

struct ReadPolicy {
  enum class Kind : std::uint8_t {
    prefer_local,
    prefer_remote,          // a member, as long as one answers
    round_robin,            // this replica and the members in turn
    least_pending,          // the replica with the fewest blocks in flight
    when_congested_remote,  // the replica that is expected to answer first, by measured times
    striped,                // by address
  };
  Kind kind = Kind::prefer_local;
  std::uint32_t stripe_blocks = 16;  // of `striped`: 8 to 256, a power of two
  bool operator==(const ReadPolicy&) const = default;
};

// "prefer-local", "prefer-remote", "round-robin", "least-pending", "when-congested-remote", "striped" (64
// KiB) or "striped:32KiB" to "striped:1MiB". Errors: Errc::invalid.
Result<ReadPolicy> parse_read_policy(std::string_view text);
std::string text_of(const ReadPolicy& policy);

}  // namespace twinloft::repl::core
