// One recipient, from the address to the verdict: who the user is, whether the spool takes mail, whether the
// mailbox has room. lmtpd's RCPT and spool-milter ask in this order, and so give the same replies. No I/O:
// the caller finds the answers.
//
//   lookup_of() ─▶ the user database ─▶ judge_user() ─▶ a verdict
//                                             └─▶ the mailbox ─▶ judge_mailbox() ─▶ a verdict
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "twinloft/lmtpd/policy/judge.h"
#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

struct Path;  // proto/path.h

struct RecipientRules {
  std::string detail_delimiter = "+";  // empty: no detail
  OverQuota over_quota = OverQuota::reject;
  // Why the spool of this user takes no mail now; null: never asked. Does not block.
  std::function<std::optional<Reply>(const User&)> spool_refusal = {};
  // Whether the mailbox of this user is checked before a message is accepted; null: never.
  std::function<bool(const User&)> has_limits = {};
  // Whether the address of this user may have characters beyond ASCII; null: always.
  std::function<bool(const User&)> takes_utf8 = {};
};

// A recipient whose user is known, or is asked for.
struct KnownRecipient {
  std::string text;        // as sent between the angle brackets
  std::string local_part;  // unquoted, without detail
  std::string detail;      // after the first delimiter; may be empty
  std::string domain;      // in lower case, with A-labels; may be empty
  User user;
};

// Whether the mailbox of a user with limits has room for a message.
struct MailboxQuestion {
  User user;
  std::string detail;
  std::uint64_t size = 0;  // of the message, as announced by MAIL; 0: not announced
};

// The question for the user database.
LookupRequest lookup_of(const Path& to, const RecipientRules& rules);
// Writes all but the user.
void name_recipient(const Path& to, const RecipientRules& rules, KnownRecipient& out);

// The refusal by the user's way of delivery. Called last.
using WayRefuses = std::function<std::optional<Reply>()>;

// Writes the found user. Returns the verdict, or the next question. size: as in MailboxQuestion.
using JudgedUser = std::variant<Accept, Refuse, MailboxQuestion>;
JudgedUser judge_user(KnownRecipient& recipient, LookupResult&& found, std::uint64_t size,
                      const RecipientRules& rules, const WayRefuses& way_refuses);
// Returns Accept or Refuse.
Verdict judge_mailbox(const KnownRecipient& recipient, const MailboxState& mailbox,
                      const RecipientRules& rules, const WayRefuses& way_refuses);

}  // namespace twinloft::lmtpd
