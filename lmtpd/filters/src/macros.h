// The macros of lmtpd's events (Sendmail's names; libmilter's smfi_getsymval documents them).
#pragma once

#include <string>

#include "twinloft/lmtpd/milter/events.h"
#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

// For CONNECT, and all later events: "j", "v", "_", {daemon_name}, {client_...}, and {tls_version}, {cipher}
// if the client of the MTA is unknown.
void set_client_macros(milter::Macros& macros, const std::string& hostname, const FilterClient& client);
// "i", {mail_addr}, {mail_host}, {mail_mailer}.
void set_mail_macros(milter::Macros& macros, const Envelope& envelope);
// {rcpt_addr}, {rcpt_host}, {rcpt_mailer}: "error" for a refused recipient.
void set_rcpt_macros(milter::Macros& macros, const FilterRcpt& rcpt);

// The client as the event CONNECT shows it. Without an address its family is unknown.
milter::Connect connect_event(const FilterClient& client);
// With its parameters, as a client would send them.
milter::Mail mail_event(const FilterMail& mail);

}  // namespace twinloft::lmtpd
