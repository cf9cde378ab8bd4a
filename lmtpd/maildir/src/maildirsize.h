// The file `maildirsize` as text, and what follows from it. Facts: the Maildir++ specification, and what
// Dovecot 2.3 does.
//
//   1000000S,200C     the limits: bytes, messages; 0S where there are none
//   734502 113        bytes and messages when it was made
//   2310 1            and every change since; -2310 -1 for what was removed
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// At this size it is made anew.
inline constexpr std::size_t maildirsize_bytes_max = 5120;
// For so long a file is believed that says that a mailbox is over its limit: mail may have been removed by a
// program that does not know of it.
inline constexpr std::int64_t maildirsize_over_seconds = 15 * 60;

struct QuotaUsage {
  std::int64_t bytes = 0;
  std::int64_t messages = 0;
  bool operator==(const QuotaUsage&) const = default;
};

struct MaildirSize {
  QuotaLimit limit;
  QuotaUsage used;
  std::size_t lines = 0;  // behind the first one
};

// A last line without its end, which somebody may be writing, is left out. nullopt: damaged, and to be made
// anew.
std::optional<MaildirSize> parse_maildirsize(std::string_view text);
std::string format_maildirsize(const QuotaLimit& limit, const QuotaUsage& used);
std::string format_change(const QuotaUsage& change);

// Whether it is to be made anew: it is about other limits, or says that the mailbox is over them and cannot
// be trusted in that. `age` in seconds.
bool is_outdated(const MaildirSize& file, const QuotaLimit& limit, std::int64_t age);

// S= of a message's file name. nullopt: it has none that can be read.
std::optional<std::uint64_t> size_in_name(std::string_view name);

// As Dovecot decides: what is below its limit takes one more message, which may exceed it by the grace.
Room room_for(std::uint64_t message_bytes, const QuotaUsage& used, const QuotaLimit& limit,
              std::uint32_t grace_percent);

}  // namespace twinloft::lmtpd
