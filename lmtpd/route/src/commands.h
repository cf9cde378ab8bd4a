// The commands for a next hop, a line each, with CR LF (RFC 5321, 1870, 6152, 6531, 3461; XCLIENT and
// XFORWARD as of Postfix).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/lmtpd/route/next_hop.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/mail/lmtp_offer.h"

namespace twinloft::lmtpd {

// Whether MAIL has SMTPUTF8: if the client has sent it, or an address in UTF-8 needs it. With
// user_and_original also if a user's name needs it.
bool says_smtputf8(const Envelope& envelope, std::span<const std::size_t> recipients, HopRecipient which,
                   const mail::LmtpOffer& offer);
std::string mail_command(const Envelope& envelope, std::uint64_t size, const mail::LmtpOffer& offer,
                         bool utf8);
// utf8: MAIL has SMTPUTF8. Without it, a user's name beyond ASCII is replaced by the address as received.
// With user_and_original the caller refuses such a name: the address might be another user there.
std::string rcpt_command(const Recipient& recipient, HopRecipient which, std::string_view detail_delimiter,
                         const mail::LmtpOffer& offer, bool utf8);
// Whether RCPT for this recipient is beyond ASCII, so that a hop without SMTPUTF8 does not get it.
bool needs_smtputf8(const Recipient& recipient, HopRecipient which, std::string_view detail_delimiter);
// The client's attributes that the hop accepts, as text. Equal texts mean the same client. Empty: no
// attribute is accepted.
std::string xclient_command(const Envelope& envelope, const mail::LmtpOffer& offer);
std::string xforward_command(const Envelope& envelope, const mail::LmtpOffer& offer);

}  // namespace twinloft::lmtpd
