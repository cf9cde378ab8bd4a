// A reply of RFC 5321 section 4.2 with the enhanced status code of RFC 3463/2034.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace twinloft::lmtpd {

inline constexpr std::size_t reply_line_bytes_max = 512;  // with its CR LF (RFC 5321 section 4.5.3.1.5)

struct Reply {
  int code = 0;          // 200..599
  std::string enhanced;  // "2.0.0"; empty where RFC 2034 forbids it (greeting, LHLO, 354)
  std::string text;      // one line of printable text, without CR, LF and control bytes (see make_reply)
  std::vector<std::string> further = {};  // lines behind it, likewise
  bool positive() const { return code >= 200 && code < 400; }
  bool operator==(const Reply&) const = default;
};

// Makes a reply with a clean text: control bytes and bytes above 126 become "?" (without SMTPUTF8 no reply is
// UTF-8), and a tab becomes a blank. The text is cut so that the line fits reply_line_bytes_max.
Reply make_reply(int code, std::string_view enhanced, std::string_view text);

// As make_reply(), with several lines: at most reply_lines_max.
inline constexpr std::size_t reply_lines_max = 32;
Reply make_reply_of_lines(int code, std::string_view enhanced, const std::vector<std::string>& lines);

// Appends the reply as it is sent. The text is cleaned as by make_reply(), so that no byte of it ends the
// line.
void append_reply(std::string& out, int code, std::string_view enhanced, std::string_view text);
// A reply of several lines has its codes in each line: "550-5.7.1 first", "550 5.7.1 last".
void append_reply(std::string& out, const Reply& reply);

// Appends a reply of several lines, such as that to LHLO: "250-first", "250-...", "250 last". At least one
// line.
void append_reply_lines(std::string& out, int code, const std::vector<std::string>& lines);

}  // namespace twinloft::lmtpd
