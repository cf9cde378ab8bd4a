#include "twinloft/lmtpd/userdb/quota_limit.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace twinloft::lmtpd {

namespace {

struct Unit {
  char letter;
  std::uint64_t bytes;
};
constexpr std::array units = std::to_array<Unit>({{'B', 1},
                                                  {'K', std::uint64_t{1} << 10},
                                                  {'M', std::uint64_t{1} << 20},
                                                  {'G', std::uint64_t{1} << 30},
                                                  {'T', std::uint64_t{1} << 40}});

char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

// Parses one "name=value" of a rule.
Status take_limit(std::string_view word, QuotaLimit& out) {
  std::size_t equals = std::min(word.find('='), word.size());
  std::string_view name = word.substr(0, equals), value = word.substr(std::min(equals + 1, word.size()));
  if (name == "storage") {
    TL_TRY_ASSIGN(out.bytes, parse_quota_bytes(value, 1024));
  } else if (name == "bytes") {
    TL_TRY_ASSIGN(out.bytes, parse_quota_bytes(value));
  } else if (name == "messages") {
    TL_TRY_ASSIGN(out.messages, parse_quota_messages(value));
  } else {
    return fail(Errc::invalid, "\"{}\" is not known: use storage=, bytes= and messages=", word);
  }
  return {};
}

}  // namespace

Result<std::uint64_t> parse_quota_bytes(std::string_view text, std::uint64_t unit) {
  std::uint64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  if (code == std::errc() && rest.size() == 1) {
    auto found = std::ranges::find(units, upper(rest.front()), &Unit::letter);
    if (found != units.end()) unit = found->bytes, rest = {};
  }
  if (code != std::errc() || !rest.empty() ||
      value > std::uint64_t(std::numeric_limits<std::int64_t>::max()) / unit)
    return fail(Errc::invalid, "\"{}\" is not a size: expected a number of bytes, or one such as 500M or 1G",
                text);
  return value * unit;
}

Result<std::uint64_t> parse_quota_messages(std::string_view text) {
  std::uint64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() ||
      value > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    return fail(Errc::invalid, "\"{}\" is no number of messages", text);
  return value;
}

Result<QuotaLimit> parse_quota_rule(std::string_view text) {
  constexpr std::string_view all_folders = "*:";
  if (!text.starts_with(all_folders))
    return fail(Errc::invalid, "\"{}\" is no rule for all folders, such as *:storage=1G:messages=1000", text);
  QuotaLimit out;
  for (std::string_view rest = text.substr(all_folders.size());;) {
    std::size_t colon = rest.find(':');
    TL_TRY(take_limit(rest.substr(0, colon), out));
    if (colon == std::string_view::npos) return out;
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace twinloft::lmtpd
