// Whether a mailbox, and the spool that it is in, takes a message: what is found out before the message is
// sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

struct MailboxState {
  // Why the spool takes no mail now, with errno in Error::sys: it is not mounted or another volume is (its
  // marker says so), it has failed (EIO), is read-only (EROFS), full (ENOSPC), or this process may not look.
  std::optional<Error> spool = {};
  std::optional<Error> counter = {};  // why the service that counts cannot say whether there is room
  Room room = Room::enough;
};

// Thread-safe.
class Mailboxes {
 public:
  virtual ~Mailboxes() = default;
  // Whether there is anything to look at before a message to that user. Never blocks.
  virtual bool has_limits(const User& user) const = 0;
  // Looks whether a message of `size` bytes (0: unknown) to that user with that detail would be stored. May
  // block. Holds no room: the delivery looks again.
  virtual MailboxState look(const User& user, const std::string& detail, std::uint64_t size) = 0;
};

}  // namespace twinloft::lmtpd
