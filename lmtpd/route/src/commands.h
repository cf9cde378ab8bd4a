// What is said to a next hop, a line each, with CR LF (RFC 5321, 1870, 6152, 6531, 3461; XCLIENT and XFORWARD
// as Postfix defines them).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/lmtpd/route/next_hop.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/mail/lmtp_offer.h"

namespace twinloft::lmtpd {

// Whether MAIL is to say SMTPUTF8: where the client has said it, or where an address needs it and is UTF-8.
bool says_smtputf8(const Envelope& envelope, std::span<const std::size_t> recipients,
                   const mail::LmtpOffer& offer);
std::string mail_command(const Envelope& envelope, std::uint64_t size, const mail::LmtpOffer& offer,
                         bool utf8);
// `utf8`: MAIL has said SMTPUTF8; without it the address is as it came where the user's name is beyond ASCII.
std::string rcpt_command(const Recipient& recipient, HopRecipient which, std::string_view detail_delimiter,
                         const mail::LmtpOffer& offer, bool utf8);
// Whom the connection speaks for. The same text: the same client. Empty: nothing that it offers to take.
std::string xclient_command(const Envelope& envelope, const mail::LmtpOffer& offer);
std::string xforward_command(const Envelope& envelope, const mail::LmtpOffer& offer);

// RFC 3461 section 4.
std::string encode_xtext(std::string_view text);

}  // namespace twinloft::lmtpd
