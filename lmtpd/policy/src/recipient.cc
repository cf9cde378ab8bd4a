#include "twinloft/lmtpd/policy/recipient.h"

#include <utility>

#include "twinloft/base/utf8.h"
#include "twinloft/lmtpd/proto/path.h"

namespace twinloft::lmtpd {

namespace {

bool takes_utf8(const RecipientRules& rules, const User& user) {
  return !rules.takes_utf8 || rules.takes_utf8(user);
}

// `user` null: there is no such user. `mailbox` null: the mailbox was not checked.
Verdict judge_facts(const KnownRecipient& recipient, Result<const User*> user, const MailboxState* mailbox,
                    const RecipientRules& rules, const WayRefuses& way_refuses) {
  RecipientFacts facts{.user = std::move(user), .mailbox = mailbox, .over_quota = rules.over_quota};
  if (facts.user && *facts.user) {
    const User& known = **facts.user;
    facts.takes_address = is_ascii(recipient.text) || takes_utf8(rules, known);
    if (rules.spool_refusal) facts.spool_refuses = [&] { return rules.spool_refusal(known); };
  }
  if (way_refuses) facts.way_refuses = way_refuses;
  return judge(facts);
}

JudgedUser as_judged(Verdict&& verdict) {
  if (Refuse* refuse = std::get_if<Refuse>(&verdict)) return std::move(*refuse);
  return Accept{};
}

}  // namespace

LookupRequest lookup_of(const Path& to, const RecipientRules& rules) {
  SplitLocalPart split = split_detail(to.local_part, rules.detail_delimiter);
  return {std::string(split.user), std::string(split.detail), to.domain};
}

void name_recipient(const Path& to, const RecipientRules& rules, KnownRecipient& out) {
  SplitLocalPart split = split_detail(to.local_part, rules.detail_delimiter);
  out.text = to.text;
  out.local_part = split.user;
  out.detail = split.detail;
  out.domain = to.domain;
}

JudgedUser judge_user(KnownRecipient& recipient, LookupResult&& found, std::uint64_t size,
                      const RecipientRules& rules, const WayRefuses& way_refuses) {
  static const MailboxState without_limits;
  if (!found || !*found) {
    Result<const User*> nobody = nullptr;
    if (!found) nobody = std::unexpected(std::move(found).error());
    return as_judged(judge_facts(recipient, std::move(nobody), nullptr, rules, way_refuses));
  }
  Resolved& resolved = **found;
  recipient.user = std::move(resolved.user);
  if (!is_ascii(recipient.text) && !takes_utf8(rules, recipient.user))
    recipient.text = with_ascii_domain(recipient.text, recipient.domain);
  if (resolved.detail) recipient.detail = std::move(*resolved.detail);
  const bool limited = rules.has_limits && rules.has_limits(recipient.user);
  Verdict verdict = judge_facts(recipient, &recipient.user, limited ? nullptr : &without_limits, rules,
                                way_refuses);
  if (!std::holds_alternative<LookAtMailbox>(verdict)) return as_judged(std::move(verdict));
  return MailboxQuestion{recipient.user, recipient.detail, size};
}

Verdict judge_mailbox(const KnownRecipient& recipient, const MailboxState& mailbox,
                      const RecipientRules& rules, const WayRefuses& way_refuses) {
  return judge_facts(recipient, &recipient.user, &mailbox, rules, way_refuses);
}

}  // namespace twinloft::lmtpd
