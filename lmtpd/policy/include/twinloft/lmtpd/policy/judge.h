// Who may receive: the decision about a recipient, from what is known of the user, of the mailbox and of the
// way of delivery. Without I/O, and without state: the caller finds the facts out.
//
// The facts are looked at in a fixed order, and the first that speaks against the recipient gives the reply:
//
//   the user database says who it is ─▶ the user's state ─▶ the address ─▶ the mailbox ─▶ the way of delivery
//
// A mailbox is looked at only if nothing before it has decided: looking may block.
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
  Result<const User*> user;   // null: there is no such user; an error: the user database cannot say, or says
                              // something that is wrong (Errc::invalid, Errc::denied)
  bool takes_address = true;  // false: the address is beyond ASCII, and the way of delivery takes
                              // no such address
  const MailboxState* mailbox = nullptr;  // null: it was not looked at
  OverQuota over_quota = OverQuota::reject;
  std::function<std::optional<Reply>()> way_refuses = {};  // why the way of delivery would refuse; asked last
};

struct Accept {
  bool operator==(const Accept&) const = default;
};
struct Refuse {
  Reply reply;
  bool operator==(const Refuse&) const = default;
};
// Nothing speaks against the recipient so far. To be judged again with its mailbox's state.
struct LookAtMailbox {
  bool operator==(const LookAtMailbox&) const = default;
};
using Verdict = std::variant<Accept, Refuse, LookAtMailbox>;

Verdict judge(const RecipientFacts& facts);

// The same reply, if it may be given to a client. A refusal for good (5xx) that rests on a row which may be
// another one by now is given as one for now.
Reply as_sure_as(const User& user, Reply reply);

}  // namespace twinloft::lmtpd
