#include "twinloft/lmtpd/policy/judge.h"

#include "twinloft/lmtpd/proto/error_reply.h"

namespace twinloft::lmtpd {

namespace {

Reply database_away() {
  return make_reply(451, "4.3.0", "User lookup temporarily unavailable");
}

// An operator must correct a wrong row; the log names it.
Reply reply_of_failed_lookup(const Error& error) {
  if (error.code != Errc::invalid && error.code != Errc::denied) return database_away();
  return make_reply(451, "4.3.5", "This mailbox has an error in the user database");
}

// Why an existing user gets no mail, independent of the mailbox.
std::optional<Reply> refusal_of_user(const User& user, bool takes_address) {
  if (user.state == UserState::disabled) return make_reply(550, "5.2.1", "This mailbox accepts no mail");
  if (user.state == UserState::deferred)
    return make_reply(450, "4.2.1", "This mailbox accepts no mail now, try again later");
  if (!takes_address) return make_reply(553, "5.6.7", "This mailbox accepts no addresses beyond ASCII");
  return std::nullopt;
}

std::optional<Reply> refusal_of_mailbox(const User& user, const MailboxState& mailbox, OverQuota over) {
  if (mailbox.spool) return reply_of_error(*mailbox.spool);
  if (mailbox.counter) return quota_unknown();
  if (mailbox.room != Room::enough) return reply_of(mailbox.room, over, user);
  return std::nullopt;
}

}  // namespace

Reply as_sure_as(const User& user, Reply reply) {
  return reply.code >= 500 && user.is_old ? database_away() : reply;
}

Verdict judge(const RecipientFacts& facts) {
  if (!facts.user) return Refuse{reply_of_failed_lookup(facts.user.error())};
  if (!*facts.user) return Refuse{make_reply(550, "5.1.1", "No such user")};
  const User& user = **facts.user;
  std::optional<Reply> refusal = refusal_of_user(user, facts.takes_address);
  if (!refusal && facts.spool_refuses) refusal = facts.spool_refuses();
  if (!refusal && !facts.mailbox) return LookAtMailbox{};
  if (!refusal) refusal = refusal_of_mailbox(user, *facts.mailbox, facts.over_quota);
  if (!refusal && facts.way_refuses) refusal = facts.way_refuses();
  if (!refusal) return Accept{};
  return Refuse{as_sure_as(user, *std::move(refusal))};
}

}  // namespace twinloft::lmtpd
