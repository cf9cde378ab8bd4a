// Making replies and writing them down (RFC 5321 section 4.2, RFC 2034).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

// A reply whose text is fit for the wire: tabs become blanks, other control bytes and bytes above 126 become "?", and
// it is cut so that the line keeps within the 512 bytes of RFC 5321 section 4.5.3.1.5.
Reply make_reply(int code, std::string_view enhanced, std::string_view text);

// "250 2.1.0 Ok\r\n", appended. Cleans again: no byte of whoever made the reply can end the line.
void append_reply(std::string& out, const Reply& reply);

// "250-first", "250-...", "250 last": the answer to LHLO. At least one line.
void append_reply_lines(std::string& out, int code, std::initializer_list<std::string_view> lines);

}  // namespace twinloft::lmtpd
