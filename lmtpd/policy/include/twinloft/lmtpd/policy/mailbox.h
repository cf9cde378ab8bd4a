// Whether a mailbox and its spool can take a message. Checked at RCPT, before the message is sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

struct MailboxState {
  // Why the spool takes no mail now, with errno in Error::sys. The marker shows that no volume or another
  // volume is mounted; or it has failed (EIO), is read-only (EROFS), full (ENOSPC), or access is denied.
  std::optional<Error> spool = {};
  std::optional<Error> counter = {};  // why the quota service gives no answer
  Room room = Room::enough;
};

// Thread-safe.
class Mailboxes {
 public:
  virtual ~Mailboxes() = default;
  // Whether look() is needed before a message to this user. Never blocks.
  virtual bool has_limits(const User& user) const = 0;
  // Checks whether a message of `size` bytes (0: unknown) to this user with this detail would be stored. May
  // block. Reserves no room: the delivery checks again.
  virtual MailboxState look(const User& user, const std::string& detail, std::uint64_t size) = 0;
  // The state if it is known without blocking; called on the thread of the connections. nullopt: call look().
  virtual std::optional<MailboxState> look_now(const User&, std::uint64_t) { return std::nullopt; }
};

}  // namespace twinloft::lmtpd
