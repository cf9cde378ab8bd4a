// The quota of mailboxes: in the file `maildirsize`, as of Dovecot's quota driver "maildir" (Maildir++), or
// by a service that counts. What a sender hears of it.
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
  count,    // a QuotaService, with its own limits. Of the settings below, only `over` applies
};

struct QuotaConfig {
  QuotaDriver driver = QuotaDriver::none;
  OverQuota over = OverQuota::reject;
  std::uint32_t grace_percent = 10;  // of the limit in bytes. The last message may exceed the limit by this
                                     // (Dovecot's quota_grace)
  std::vector<std::string> ignored;  // directories of folders that do not count, such as ".Trash" (Dovecot's
                                     // "Trash:ignore")
};

// The limit as text: "1000000 bytes, 200 messages" or "none".
std::string quota_text(const QuotaLimit& limit);

// Whether there is room for a message. never: the message would not fit into the empty mailbox.
enum class Room { enough, full, never };
// What a user's mail gets where room is lacking. Of a user whose limit may be another one by now it is not
// refused for good.
Reply reply_of(Room lacking, OverQuota over, const User& user);
Reply quota_unknown();  // nobody can say whether there is room: 451 4.3.0
Reply quota_held();     // there is none beside messages that are being delivered: 451 4.3.0

// A service that counts the content of mailboxes. Thread-safe.
class QuotaService {
 public:
  virtual ~QuotaService() = default;
  // Whether the user's mailbox has room for another message. bytes: its size with CRLF line ends. Blocks.
  // Errors: the service failed.
  virtual Result<Room> room(const User& user, std::uint64_t bytes) = 0;
};

}  // namespace twinloft::lmtpd
