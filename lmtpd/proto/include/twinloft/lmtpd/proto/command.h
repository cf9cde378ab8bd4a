// LMTP commands with their parameters (RFC 2033, RFC 5321 section 4.1.1), parsed from one line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "twinloft/lmtpd/proto/path.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

// With CRLF. RFC 5321 requires 512; MTAs send longer ones (Postfix: paths of 2048 bytes).
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
  std::string envelope_id;            // ENVID, decoded (section 4.4); empty if absent
};
struct Rcpt {
  Path to;
  std::string original_type;  // ORCPT's address type in lower case, such as "rfc822"; empty if absent
  std::string original_to;    // ORCPT's address, decoded (RFC 3461 section 4.2, RFC 6533 section 3); empty if
                              // absent
  std::string notify;  // RFC 3461 section 4.1: "NEVER", or some of "SUCCESS,FAILURE,DELAY" in the client's
                       // order
};
struct Data {};
struct Bdat {              // RFC 3030 section 2
  std::uint64_t size = 0;  // bytes after the command's CRLF
  bool last = false;
};
struct StartTls {};  // RFC 3207
// The attributes of a client, from its proxy or MTA: Postfix's XCLIENT and XFORWARD (XCLIENT_README,
// XFORWARD_README). nullopt: not sent. Empty: sent as unknown.
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

// Parses a line without its CRLF. Errors: the reply to send. 500: unknown command, also HELO and EHLO (RFC
// 2033 section 4.1). 501: malformed. 553: the sender needs SMTPUTF8. 555: unknown parameter.
std::expected<Command, Reply> parse_command(std::string_view line);
// Whether the line begins with this command, well-formed or not. After a malformed BDAT, the bytes of the
// chunk cannot be distinguished from commands.
bool is_mail(std::string_view line);
bool is_rcpt(std::string_view line);
bool is_bdat(std::string_view line);

}  // namespace twinloft::lmtpd
