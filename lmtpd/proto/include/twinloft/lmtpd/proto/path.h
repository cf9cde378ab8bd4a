// Reverse-paths and forward-paths (RFC 5321 section 4.1.2, and RFC 6531 section 3.3 for those beyond ASCII).
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

inline constexpr std::size_t path_bytes_max = 512;    // of a recipient's; RFC 5321 asks for 256
inline constexpr std::size_t domain_bytes_max = 255;  // RFC 5321 section 4.5.3.1.2

struct Path {
  std::string text;  // between the angle brackets, as sent, without a source route; empty: the null path
  std::string local_part;  // unquoted
  // A recipient's: lower case, A-labels (RFC 5890) or, where IDNA does not allow it, as it was sent, without
  // the dot that may end it.
  // "[...]" for an address literal, in one form too; empty where there is none.
  std::string domain;
  bool is_ascii = true;
  bool is_null() const { return text.empty(); }
};

// A sender's is kept as it was sent, in no grammar but that of the brackets: the MTA has accepted the
// message, and a refusal would only make a bounce of it. A recipient's is looked up, and is clean UTF-8.
enum class PathOf { sender, recipient };

// Takes a path from the front of `rest`: "<", optional source route (RFC 5321 appendix C: accepted and
// ignored), mailbox or nothing, ">". Errors say what is wrong, fit for a reply: a missing bracket or quote, a
// blank outside of quotes, an empty local part; a recipient with bytes that need quotes, or with bytes above
// 127 that are no UTF-8 or a control character.
Result<Path> take_path(std::string_view& rest, PathOf whose);

// A text that is one address as a path has it, without brackets, source route and anything around it; never
// null. The domain may end in a dot. Errors name it.
Result<Path> parse_address(std::string_view text);

// The one form that domains are kept and compared in, however they are written: lower case, A-labels (RFC
// 5890), without the dot that may end them. Errors: none that an address could have.
Result<std::string> normal_domain(std::string_view text);

// "bücher.example:2400" with A-labels, as name servers have it: a host, and a port or none behind it. What is
// ASCII, or no such thing, stays as it is.
std::string with_ascii_host(std::string_view address);

// For one who takes ASCII alone: the address with `domain`, its own in A-labels. As it is where that makes no
// difference.
std::string with_ascii_domain(std::string_view address, std::string_view domain);

// With U-labels, as its owner may write it; as it is where it has none.
std::string unicode_domain(const std::string& domain);

// Where a local part is split into user and detail: at the first `delimiter` that is not its first byte.
struct SplitLocalPart {
  std::string_view user, detail;
};
SplitLocalPart split_detail(std::string_view local_part, std::string_view delimiter);

}  // namespace twinloft::lmtpd
