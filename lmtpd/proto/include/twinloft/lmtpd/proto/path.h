// Reverse-paths and forward-paths (RFC 5321 section 4.1.2, and RFC 6531 section 3.3 for those beyond ASCII).
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/result.h"

namespace twinloft::lmtpd {

inline constexpr std::size_t path_bytes_max = 512;    // more generous than RFC 5321's 256: VERP senders are long
inline constexpr std::size_t domain_bytes_max = 255;  // RFC 5321 section 4.5.3.1.2

struct Path {
  std::string text;        // between the angle brackets, as sent, without a source route; empty: the null path
  std::string local_part;  // unquoted
  std::string domain;      // lower case, A-labels (RFC 5890); "[...]" for an address literal; empty where there is none
  bool is_ascii = true;    // else it may be used where SMTPUTF8 was given only
  bool is_null() const { return text.empty(); }
};

// Takes a path from the front of `rest`: "<", optional source route (RFC 5321 appendix C: accepted and ignored),
// mailbox or nothing, ">". Errors say what is wrong, fit for a reply: bytes that need quotes, a missing bracket, an
// empty local part, bytes above 127 that are no UTF-8 or a control character, a domain that IDNA 2008 does not allow.
Result<Path> take_path(std::string_view& rest);

// A text that is one address as a path has it, without brackets, source route and anything around it; never null. Errors name it.
Result<Path> parse_address(std::string_view text);

// Where a local part is split into user and detail: at the first `delimiter` that is not its first byte.
struct SplitLocalPart {
  std::string_view user, detail;
};
SplitLocalPart split_detail(std::string_view local_part, std::string_view delimiter);

// As a dot-string or a quoted string (RFC 5321 section 4.1.2). Bytes above ASCII are good in both (RFC 6531).
std::string quote_local_part(std::string_view text);

}  // namespace twinloft::lmtpd
