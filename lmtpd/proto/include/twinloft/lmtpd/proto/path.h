// Reverse-paths and forward-paths (RFC 5321 section 4.1.2; RFC 6531 section 3.3 for UTF-8), and the forms of
// their domains and local-parts.
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

inline constexpr std::size_t path_bytes_max = 512;    // of a recipient; RFC 5321 requires 256
inline constexpr std::size_t domain_bytes_max = 255;  // RFC 5321 section 4.5.3.1.2

struct Path {
  // As sent, without the angle brackets and a source route. Empty: the null path.
  std::string text;
  std::string local_part;  // without quotes
  // Of a recipient: as normal_domain() returns it, or as sent if IDNA does not allow the domain. An address
  // literal is "[...]", also in a single form. Empty: the address has no domain.
  std::string domain;
  bool is_ascii = true;
  bool is_null() const { return text.empty(); }
};

// The path of a sender is kept as sent, and only its brackets are checked: the MTA has accepted the message,
// and a refusal would cause a bounce. The path of a recipient is clean UTF-8, since it is looked up.
enum class PathOf { sender, recipient };

// Removes a path from the front of `rest`: "<", a mailbox or nothing, ">". A source route before the mailbox
// is ignored (RFC 5321 appendix C). Errors: a text for a reply. A bracket or quote is missing, a blank is
// outside of quotes, the local-part is empty; for a recipient also bytes that need quotes, and bytes above
// 127 that are not UTF-8 or a control character.
Result<Path> take_path(std::string_view& rest, PathOf whose);

// Parses an address of a recipient without brackets and source route. The domain may end in a dot. Errors
// contain the text. An empty text is an error.
Result<Path> parse_address(std::string_view text);

// The form in which domains are stored and compared: lower case, A-labels (RFC 5890), without a dot at the
// end. Errors: no address can have such a domain.
Result<std::string> normal_domain(std::string_view text);

// "bücher.example:2400" with A-labels, as the DNS needs it. The text is a host, with or without a port. A
// text that is ASCII or not a host name is returned unchanged.
std::string with_ascii_host(std::string_view address);

// The address with `domain`, which is its own domain in A-labels, for a program that accepts ASCII alone. An
// address whose domain is ASCII is returned unchanged.
std::string with_ascii_domain(std::string_view address, std::string_view domain);

// The domain with U-labels (RFC 5890). A domain without them is returned unchanged.
std::string unicode_domain(const std::string& domain);

// Splits a local-part at the first `delimiter` that is not its first byte. Without it, `detail` is empty.
struct SplitLocalPart {
  std::string_view user, detail;
};
SplitLocalPart split_detail(std::string_view local_part, std::string_view delimiter);

}  // namespace twinloft::lmtpd
