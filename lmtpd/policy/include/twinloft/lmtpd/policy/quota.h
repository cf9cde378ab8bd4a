// The quota of mailboxes, and its replies. The source is the file `maildirsize`, as in Dovecot's quota driver
// "maildir" (Maildir++), or a service that counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/user.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

enum class OverQuota {
  reject,  // 552 5.2.2: the MTA returns the message to its sender
  defer,   // 452 4.2.2: the MTA tries again
};
Result<OverQuota> parse_over_quota(std::string_view text);  // "reject", "defer"

enum class QuotaDriver {
  none,
  maildir,  // maildirsize, with the limits of users
  count,    // a QuotaService, with its own limits. Of the settings below, only `over` and `lease` apply
};

inline constexpr std::uint64_t lease_bytes_default = 16u << 20;

struct QuotaConfig {
  QuotaDriver driver = QuotaDriver::none;
  OverQuota over = OverQuota::reject;
  std::uint64_t lease = lease_bytes_default;  // the most that is asked for at once (quota_leases.h); 0: a
                                              // message
  // Percent of the limit in bytes. The last message may exceed the limit by this (Dovecot's quota_grace).
  std::uint32_t grace_percent = 10;
  // Directories of folders that do not count, such as ".Trash" (Dovecot's "Trash:ignore").
  std::vector<std::string> ignored;
};

// The limit as text: "1000000 bytes, 200 messages" or "none".
std::string quota_text(const QuotaLimit& limit);

// Whether a mailbox has room for a message. never: the message would not fit into an empty mailbox.
enum class Room { enough, full, never };
// The reply if there is no room. If the user's row is stale, its limit may have changed, so the reply is
// temporary.
Reply reply_of(Room lacking, OverQuota over, const User& user);
Reply quota_unknown();  // it is unknown whether there is room: 451 4.3.0
Reply quota_held();     // deliveries in flight hold the room: 451 4.3.0

// A service that counts the content of mailboxes. Thread-safe.
class QuotaService {
 public:
  virtual ~QuotaService() = default;
  // Whether the user's mailbox has room for another message. bytes: its size with CRLF line ends. Blocks.
  // Errors: the service failed.
  virtual Result<Room> room(const User& user, std::uint64_t bytes) = 0;
};

}  // namespace twinloft::lmtpd
