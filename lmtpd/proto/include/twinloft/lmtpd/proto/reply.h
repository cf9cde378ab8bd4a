// A reply of RFC 5321 section 4.2 with the enhanced status code of RFC 3463/2034.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace twinloft::lmtpd {

inline constexpr std::size_t reply_line_bytes_max = 512;  // with its CR LF (RFC 5321 section 4.5.3.1.5)

struct Reply {
  int code = 0;          // 200..599
  std::string enhanced;  // "2.0.0"; empty where RFC 2034 forbids one (greeting, LHLO, 354)
  std::string text;      // one line of printable text; never holds CR, LF or control bytes (see make_reply)
  bool positive() const { return code >= 200 && code < 400; }
  bool operator==(const Reply&) const = default;
};

// Of `text`: what a client could take for a line end or a terminal for a command becomes "?", and so do bytes
// above 126 (no reply is UTF-8 without SMTPUTF8); a tab becomes a blank. Cut so that the line fits the 512
// bytes of RFC 5321 section 4.5.3.1.5.
Reply make_reply(int code, std::string_view enhanced, std::string_view text);

// Appends the reply as it goes over the wire. A reply that did not come from make_reply is cleaned here: no
// byte of its text can end the line.
void append_reply(std::string& out, const Reply& reply);

// "250-first", "250-...", "250 last": what LHLO is answered with. At least one line.
void append_reply_lines(std::string& out, int code, const std::vector<std::string>& lines);

}  // namespace twinloft::lmtpd
