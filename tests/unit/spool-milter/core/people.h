// A user database and mailboxes for tests of answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "twinloft/lmtpd/policy/recipient.h"

namespace twinloft::spool_milter {

inline lmtpd::User person(std::string name) {
  lmtpd::User user;
  user.name = std::move(name);
  user.uid = user.gid = 5000;
  user.home = user.maildir = "/srv/mail/" + user.name;
  return user;
}

// ann: active, without limits. bob: disabled. carl: deferred. full, huge: over quota. far: has a next hop,
// and a limit. old, oldfull: rows from memory, disabled and over quota. agent: an external agent without
// UTF-8. wrong: an error in the row. away: the database does not answer. Nobody else exists.
inline lmtpd::LookupResult look_up(const lmtpd::LookupRequest& request) {
  using lmtpd::Resolved, lmtpd::UserState;
  if (request.domain != "example.org" && request.domain != "xn--bcher-kva.example") return std::nullopt;
  const std::string& name = request.local_part;
  lmtpd::User user = person(name);
  if (name == "away") return fail(Errc::unavailable, "no answer");
  if (name == "wrong") return fail(Errc::invalid, "uid 0");
  if (name == "bob" || name == "old") user.state = UserState::disabled;
  if (name == "carl") user.state = UserState::deferred;
  if (name == "full" || name == "huge" || name == "far" || name == "oldfull") user.quota.bytes = 1000;
  if (name == "far") user.next_hop = "other";
  if (name == "agent") user.agent = "lda";
  user.is_old = name.starts_with("old");
  constexpr std::string_view known[] = {"ann", "bob", "carl",    "full",  "huge",
                                        "far", "old", "oldfull", "agent", "-x"};
  for (std::string_view one : known)
    if (one == name) return Resolved{std::move(user)};
  return std::nullopt;
}

inline lmtpd::MailboxState look(const lmtpd::MailboxQuestion& question) {
  lmtpd::MailboxState state;
  if (question.user.name.ends_with("full")) state.room = lmtpd::Room::full;
  if (question.user.name == "huge") state.room = lmtpd::Room::never;
  return state;
}

inline lmtpd::RecipientRules people_rules() {
  return {
      .has_limits = [](const lmtpd::User& user) { return user.next_hop.empty() && !user.quota.unlimited(); },
      .takes_utf8 = [](const lmtpd::User& user) { return user.agent.empty(); }};
}

// By the user's way of delivery: no address of an external agent begins with "-".
inline std::optional<lmtpd::Reply> refuse_dash(const lmtpd::KnownRecipient& recipient) {
  if (!recipient.text.starts_with('-')) return std::nullopt;
  return lmtpd::make_reply(550, "5.1.3", "The recipient's address starts with \"-\"");
}

}  // namespace twinloft::spool_milter
