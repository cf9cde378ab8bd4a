// What spool-milter answers to a recipient. lmtpd's RCPT would give the same reply later, by the same policy
// (lmtpd/policy/recipient.h). No I/O: the caller finds the facts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/lmtpd/policy/recipient.h"

namespace twinloft::spool_milter {

// What MAIL has said.
struct Sender {
  std::string address;         // reverse-path without brackets; empty: the null sender
  std::uint64_t size = 0;      // of the message (RFC 1870); 0: not announced
  bool smtputf8 = false;       // RFC 6531
  bool authenticated = false;  // by the MTA
  bool operator==(const Sender&) const = default;
};

// words: MAIL's argument and its ESMTP parameters, as the MTA hands them on. No sender is refused, so other
// parameters and wrong values are ignored. auth_authen: the macro of this name; empty: not authenticated.
Sender read_mail(std::span<const std::string_view> words, std::string_view auth_authen);

// What RCPT and the MTA's macros have said.
struct AskedRecipient {
  std::string_view word;          // RCPT's argument, with or without angle brackets
  std::string_view mailer, host;  // {rcpt_mailer}, {rcpt_host}; empty: not sent
};

// Whose recipients are judged. Values as in the section [spool_milter].
struct Scope {
  std::vector<std::string> domains, mailers, hosts;

  bool has_domain(std::string_view domain) const;
  bool has_way(const AskedRecipient& recipient) const;  // by the macros
};

struct Rules {
  Scope scope;
  bool refuses_unknown = true;  // false: an unknown user is for the MTA to judge
  std::uint64_t message_bytes_max = UINT64_MAX;
  // Without spool_refusal: Facts has it.
  lmtpd::RecipientRules recipients;
};

// Where the facts come from. The first two may block, and are bounded. nullopt: there was no answer in time.
struct Facts {
  std::function<std::optional<lmtpd::LookupResult>(const lmtpd::LookupRequest&)> look_up;
  std::function<std::optional<lmtpd::MailboxState>(const lmtpd::MailboxQuestion&)> look;
  // Why the spool of this user takes no mail now; null: there is no spool.
  std::function<std::optional<lmtpd::Reply>(const lmtpd::User&, bool authenticated)> spool_refuses;
  // Whether a look at a mailbox would wait for the spool; null: never.
  std::function<bool()> spool_waits;
  // The refusal by the user's way of delivery; null: never.
  std::function<std::optional<lmtpd::Reply>(const Sender&, const lmtpd::KnownRecipient&)> way_refuses;
};

// nullopt: continue. The MTA decides, and lmtpd judges again.
std::optional<lmtpd::Reply> answer(const Sender& sender, const AskedRecipient& recipient, const Rules& rules,
                                   const Facts& facts);

// A reply as smfi_setreply(3) takes it. A percent sign is doubled, since libmilter formats the text.
struct MilterReply {
  std::string code, enhanced, text;
  bool operator==(const MilterReply&) const = default;
};
MilterReply milter_reply(const lmtpd::Reply& reply);

}  // namespace twinloft::spool_milter
