// Decides whether a recipient is accepted, by facts about the user, the mailbox and the way of delivery. No
// I/O and no state: the caller finds the facts.
//
// The facts are checked in a fixed order. The first fact that refuses the recipient gives the reply:
//
//   the user database ─▶ the user's state ─▶ the address ─▶ the spool ─▶ the mailbox ─▶ the way of delivery
//
// The mailbox is checked only if no earlier fact has decided, because the check may block.
#pragma once

#include <functional>
#include <optional>
#include <variant>

#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/policy/user.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

struct RecipientFacts {
  // null: there is no such user. Errors: the user database failed, or its row is wrong (Errc::invalid,
  // Errc::denied).
  Result<const User*> user;
  // false: the address has characters beyond ASCII, and the way of delivery does not support them.
  bool takes_address = true;
  std::function<std::optional<Reply>()> spool_refuses = {};  // the spool takes no mail now
  const MailboxState* mailbox = nullptr;                     // null: not checked yet
  OverQuota over_quota = OverQuota::reject;
  std::function<std::optional<Reply>()> way_refuses = {};  // the refusal by the way of delivery; called last
};

struct Accept {
  bool operator==(const Accept&) const = default;
};
struct Refuse {
  Reply reply;
  bool operator==(const Refuse&) const = default;
};
// No fact refuses the recipient so far. The caller finds the state of the mailbox and calls judge() again.
struct LookAtMailbox {
  bool operator==(const LookAtMailbox&) const = default;
};
using Verdict = std::variant<Accept, Refuse, LookAtMailbox>;

Verdict judge(const RecipientFacts& facts);

// Replaces a permanent refusal (5xx) by a temporary one if it rests on a stale row. Returns any other reply
// unchanged.
Reply as_sure_as(const User& user, Reply reply);

}  // namespace twinloft::lmtpd
