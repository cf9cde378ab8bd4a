// Responses of an IMAP4rev1 server (RFC 3501 section 7), parsed from any split of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::mailbench {

// One response: its lines with the literals between them.
struct ImapResponse {
  std::string text;                   // without the last CRLF; literal i is {N} and CRLF, without its bytes
  std::vector<std::string> literals;  // in their order
};

struct ImapToken {
  enum class Kind : std::uint8_t { atom, string, open, close };  // string: quoted, or a literal
  Kind kind = Kind::atom;
  std::string text;
};

class ImapResponseParser {
 public:
  static constexpr std::size_t kLineMax = 1 << 20;  // bytes of a response without its literals
  static constexpr std::uint64_t kLiteralMax = (1u << 30) + (1u << 20);  // bytes, of all of a response
  static constexpr std::size_t kLiteralsMax = 64;

  // Removes bytes from the front, up to the end of a response. True: response() is complete. Errors:
  // Errc::corrupt, a limit is passed or a size is malformed.
  Result<bool> feed(std::string_view& bytes);
  ImapResponse& response() { return response_; }

 private:
  Status end_line();
  ImapResponse response_;
  std::size_t line_start_ = 0;  // of the present line in response_.text
  std::optional<std::uint64_t> literal_left_;
  std::uint64_t literal_bytes_ = 0;
  bool complete_ = false;
};

// The tokens of a response such as FETCH or LIST; a literal becomes a string, and leaves the response.
// Errors: Errc::corrupt, an open string.
Result<std::vector<ImapToken>> imap_tokens(ImapResponse&& response);

// "* 5 FETCH (... BODY[] <content> ...)": the number and the content. Nothing: another response.
struct ImapFetched {
  std::uint64_t number = 0;
  std::string content;
};
Result<std::optional<ImapFetched>> imap_fetched(ImapResponse&& response);

// "* LIST (flags) delimiter name". Nothing: another response, or a name that cannot be selected.
Result<std::optional<std::string>> imap_listed(ImapResponse&& response);

// A quoted string of RFC 3501. Errors: Errc::invalid, it has CR, LF, NUL or 8-bit bytes.
Result<std::string> imap_quoted(std::string_view text);

}  // namespace twinloft::mailbench
