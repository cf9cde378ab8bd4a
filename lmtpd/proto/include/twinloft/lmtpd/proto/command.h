// LMTP commands (RFC 2033, RFC 5321 section 4.1.1) with their parameters, from one line without its CRLF.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

// With CRLF. RFC 5321 asks for 512; MTAs take longer senders (Postfix: 2048).
inline constexpr std::size_t command_line_bytes_max = 8192;

struct Lhlo {
  std::string domain;
};
struct Mail {
  Path from;
  std::optional<std::uint64_t> size;  // RFC 1870
  bool body_8bitmime = false;         // RFC 6152
  bool smtputf8 = false;              // RFC 6531
  std::string ret;                    // RFC 3461 section 4.3: "FULL", "HDRS", or empty
  std::string envelope_id;            // ENVID, decoded (section 4.4); empty where absent
};
struct Rcpt {
  Path to;
  std::string original_type;  // ORCPT's address type in small letters, such as "rfc822"; empty where absent
  std::string original_to;    // ORCPT's address, decoded (RFC 3461 section 4.2, RFC 6533 section 3); empty
                              // where absent
  std::string notify;  // RFC 3461 section 4.1: "NEVER", or some of "SUCCESS,FAILURE,DELAY" in the client's
                       // order
};
struct Data {};
struct Bdat {  // RFC 3030 section 2: so many bytes follow the command's CRLF
  std::uint64_t size = 0;
  bool last = false;
};
struct StartTls {};  // RFC 3207
// What a proxy or an MTA says of the client that it speaks for: Postfix's XCLIENT and XFORWARD
// (XCLIENT_README, XFORWARD_README). nullopt: not said; empty: said to be unknown.
struct ClientAttributes {
  std::optional<std::string> name, address, port, proto, helo, login, ident, source;
};
struct Xclient : ClientAttributes {};
struct Xforward : ClientAttributes {};
struct Rset {};
struct Noop {};
struct Help {};
struct Quit {};
struct Vrfy {};

using Command = std::variant<Lhlo, Mail, Rcpt, Data, Bdat, StartTls, Xclient, Xforward, Rset, Noop, Help,
                             Quit, Vrfy>;

// The error is the reply to give: 500 unknown, 501 malformed, 553 a sender that needs SMTPUTF8, 555 unknown
// parameter, and for HELO and EHLO 500, which RFC 2033 section 4.1 demands. Behind a malformed BDAT come
// bytes that nobody can tell from commands: is_bdat() says whether a line was meant as one.
std::expected<Command, Reply> parse_command(std::string_view line);
bool is_mail(std::string_view line);
bool is_rcpt(std::string_view line);
bool is_bdat(std::string_view line);

}  // namespace twinloft::lmtpd
