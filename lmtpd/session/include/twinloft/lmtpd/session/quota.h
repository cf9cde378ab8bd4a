// Quota of Maildirs: kept in the file `maildirsize` as Dovecot's quota driver "maildir" keeps it (Maildir++),
// or asked of somebody who counts.
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
  maildir,  // maildirsize is kept, and users' limits hold
  count,    // a QuotaService knows, and has the limits; of what follows only `over` counts
};

struct QuotaConfig {
  QuotaDriver driver = QuotaDriver::none;
  OverQuota over = OverQuota::reject;
  std::uint32_t grace_percent = 10;  // of the limit in bytes, by which the last message may exceed it
                                     // (Dovecot's quota_grace)
  std::vector<std::string> ignored;  // directories of folders that do not count, such as ".Trash" (Dovecot's
                                     // "Trash:ignore")
};

// "1000000 bytes, 200 messages", "none"; for a person.
std::string quota_text(const QuotaLimit& limit);

// Whether there is room for a message. `never`: not even in the empty mailbox.
enum class Room { enough, full, never };
Reply reply_of(Room lacking, OverQuota over);

// Who knows what mailboxes hold and may hold. Thread-safe.
class QuotaService {
 public:
  virtual ~QuotaService() = default;
  // Whether the user's mailbox would take one more message, of `bytes` with CRLF line ends. Blocks. An error:
  // it cannot say.
  virtual Result<Room> room(const User& user, std::uint64_t bytes) = 0;
};

}  // namespace twinloft::lmtpd
