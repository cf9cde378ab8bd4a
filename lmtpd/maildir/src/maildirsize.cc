#include "maildirsize.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace twinloft::lmtpd {

namespace {

constexpr std::int64_t number_max = std::int64_t{1} << 60;  // the largest plausible number

// Takes a decimal number from the front of `text`.
template <class T>
std::optional<T> take_number(std::string_view& text) {
  T value{};
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// As in Dovecot, an unreadable limit counts as none. The limits then differ from the user's, so the file is
// replaced.
QuotaLimit parse_limits(std::string_view line) {
  QuotaLimit out;
  while (!line.empty()) {
    std::size_t comma = std::min(line.find(','), line.size());
    std::string_view one = line.substr(0, comma);
    auto value = take_number<std::uint64_t>(one);
    if (value && one == "S") out.bytes = *value;
    if (value && one == "C") out.messages = *value;
    line.remove_prefix(std::min(comma + 1, line.size()));
  }
  return out;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
void skip_blanks(std::string_view& text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
}

std::optional<QuotaUsage> parse_change(std::string_view line) {
  skip_blanks(line);
  auto bytes = take_number<std::int64_t>(line);
  if (!bytes || line.empty() || !is_blank(line.front())) return std::nullopt;
  skip_blanks(line);
  auto messages = take_number<std::int64_t>(line);
  skip_blanks(line);
  if (!messages || !line.empty()) return std::nullopt;
  for (std::int64_t value : {*bytes, *messages})
    if (value > number_max || value < -number_max) return std::nullopt;
  return QuotaUsage{*bytes, *messages};
}

std::uint64_t not_negative(std::int64_t value) {
  return value < 0 ? 0 : static_cast<std::uint64_t>(value);
}

}  // namespace

std::optional<MaildirSize> parse_maildirsize(std::string_view text) {
  text = text.substr(0, text.rfind('\n') + 1);
  if (text.empty() || text.find('\0') != std::string_view::npos) return std::nullopt;
  MaildirSize out;
  bool first = true;
  for (std::size_t end; !text.empty(); text.remove_prefix(end + 1)) {
    end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (std::exchange(first, false)) {
      out.limit = parse_limits(line);
      continue;
    }
    auto change = parse_change(line);
    if (!change || ++out.lines > maildirsize_bytes_max) return std::nullopt;
    if (__builtin_add_overflow(out.used.bytes, change->bytes, &out.used.bytes) ||
        __builtin_add_overflow(out.used.messages, change->messages, &out.used.messages))
      return std::nullopt;
  }
  if (out.lines == 0 || out.used.bytes < 0 || out.used.messages < 0) return std::nullopt;
  return out;
}

std::string format_maildirsize(const QuotaLimit& limit, const QuotaUsage& used) {
  std::string limits;
  if (limit.bytes != 0 || limit.messages == 0) limits = fmt::format("{}S", limit.bytes);
  if (limit.messages != 0) limits += fmt::format("{}{}C", limits.empty() ? "" : ",", limit.messages);
  return limits + "\n" + format_change(used);
}

std::string format_change(const QuotaUsage& change) {
  return fmt::format("{} {}\n", change.bytes, change.messages);
}

bool is_outdated(const MaildirSize& file, const QuotaLimit& limit, std::int64_t age) {
  if (file.limit != limit) return true;
  bool over = (limit.bytes != 0 && not_negative(file.used.bytes) > limit.bytes) ||
              (limit.messages != 0 && not_negative(file.used.messages) > limit.messages);
  return over && (file.lines > 1 || age > maildirsize_over_seconds);
}

std::optional<std::uint64_t> size_in_name(std::string_view name) {
  constexpr std::string_view mark = ",S=";
  std::size_t at = name.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  name.remove_prefix(at + mark.size());
  auto size = take_number<std::uint64_t>(name);
  bool ends = name.empty() || name.front() == ',' || name.front() == ':';
  return ends && size && *size <= static_cast<std::uint64_t>(number_max) ? size : std::nullopt;
}

Room room_for(std::uint64_t message_bytes, const QuotaUsage& used, const QuotaLimit& limit,
              std::uint32_t grace_percent) {
  std::uint64_t bytes = not_negative(used.bytes), messages = not_negative(used.messages);
  if (limit.bytes != 0) {
    std::uint64_t grace = limit.bytes / 100 * grace_percent + limit.bytes % 100 * grace_percent / 100;
    std::uint64_t most = limit.bytes > std::numeric_limits<std::uint64_t>::max() - grace
                             ? std::numeric_limits<std::uint64_t>::max()
                             : limit.bytes + grace;
    if (message_bytes > most) return Room::never;
    if (bytes >= limit.bytes || message_bytes > most - bytes) return Room::full;
  }
  if (limit.messages != 0 && messages >= limit.messages) return Room::full;
  return Room::enough;
}

}  // namespace twinloft::lmtpd
