// The quota of Maildirs: in the file `maildirsize`, as of Dovecot's quota driver "maildir" (Maildir++), or by
// a service that counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/reply.h"
#include "twinloft/lmtpd/session/model.h"

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
Reply reply_of(Room lacking, OverQuota over);

// A service that counts the content of mailboxes. Thread-safe.
class QuotaService {
 public:
  virtual ~QuotaService() = default;
  // Whether the user's mailbox has room for another message. bytes: its size with CRLF line ends. Blocks.
  // Errors: the service failed.
  virtual Result<Room> room(const User& user, std::uint64_t bytes) = 0;
};

}  // namespace twinloft::lmtpd
