// Reads and writes the text of the file `maildirsize`. Sources: the Maildir++ specification, and the
// behaviour of Dovecot 2.3.
//
//   1000000S,200C     the limits: bytes, messages; 0S: no limits
//   734502 113        bytes and messages when the file was made
//   2310 1            each later change; -2310 -1 for a removed message
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// A file of this size is replaced by a new count.
inline constexpr std::size_t maildirsize_bytes_max = 5120;
// How long a file that reports an exceeded limit is trusted. A program that does not update the file may have
// removed mail.
inline constexpr std::int64_t maildirsize_over_seconds = 15 * 60;

struct QuotaUsage {
  std::int64_t bytes = 0;
  std::int64_t messages = 0;
  bool operator==(const QuotaUsage&) const = default;
};

struct MaildirSize {
  QuotaLimit limit;
  QuotaUsage used;
  std::size_t lines = 0;  // behind the first line
};

// Ignores a last line without LF, which another program may be writing. nullopt: damaged; the caller replaces
// the file.
std::optional<MaildirSize> parse_maildirsize(std::string_view text);
std::string format_maildirsize(const QuotaLimit& limit, const QuotaUsage& used);
std::string format_change(const QuotaUsage& change);

// Whether the file must be replaced: its limits differ, or it reports an exceeded limit and is too old or has
// changes. `age` in seconds.
bool is_outdated(const MaildirSize& file, const QuotaLimit& limit, std::int64_t age);

// S= of a message's file name. nullopt: missing or invalid.
std::optional<std::uint64_t> size_in_name(std::string_view name);

// Decides as Dovecot: a mailbox below its limit takes one more message, which may exceed the limit by the
// grace.
Room room_for(std::uint64_t message_bytes, const QuotaUsage& used, const QuotaLimit& limit,
              std::uint32_t grace_percent);

}  // namespace twinloft::lmtpd
