#include "twinloft/spool-repl/core/read_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "twinloft/base/units.h"
#include "twinloft/spool-repl/format/types.h"

namespace twinloft::repl::core {

namespace {
constexpr std::array names{"prefer-local",  "prefer-remote",         "round-robin",
                           "least-pending", "when-congested-remote", "striped"};
constexpr std::string_view striped = "striped:";
}  // namespace

Result<ReadPolicy> parse_read_policy(std::string_view text) {
  auto name = std::find(names.begin(), names.end(), text);
  if (name != names.end()) return ReadPolicy{static_cast<ReadPolicy::Kind>(name - names.begin())};
  if (!text.starts_with(striped))
    return fail(Errc::invalid, "\"{}\" is unknown: expected {}, or \"striped:32KiB\" to \"striped:1MiB\"",
                text, fmt::join(names, ", "));
  auto bytes = parse_size(text.substr(striped.size()));
  if (!bytes || *bytes < 32 << 10 || *bytes > 1 << 20 || !std::has_single_bit(*bytes))
    return fail(Errc::invalid, "\"{}\": expected a stripe of 32, 64, 128, 256 or 512 KiB, or of 1 MiB", text);
  return ReadPolicy{ReadPolicy::Kind::striped, static_cast<std::uint32_t>(*bytes / block_size)};
}

std::string text_of(const ReadPolicy& policy) {
  std::string name = names[static_cast<std::size_t>(policy.kind)];
  if (policy.kind != ReadPolicy::Kind::striped) return name;
  return fmt::format("{}:{}KiB", name, policy.stripe_blocks * block_size >> 10);
}

}  // namespace twinloft::repl::core
