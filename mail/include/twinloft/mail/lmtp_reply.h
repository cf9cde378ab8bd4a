// Parses replies of an LMTP server (RFC 5321 section 4.2), for any split of the bytes, without I/O.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"

namespace twinloft::mail {

struct LmtpReply {
  int code = 0;                    // 200..599
  std::vector<std::string> lines;  // without the code; at least one
  bool positive() const { return code >= 200 && code < 300; }
  std::string text() const;  // "550 5.1.1 no such user", for messages
};

// The owner of the connection calls feed() with the received bytes.
class LmtpReplyParser {
 public:
  static constexpr std::size_t line_bytes_max = 2048;  // RFC 5321 section 4.5.3.1.5 has 512
  static constexpr std::size_t lines_max = 128;
  static constexpr std::size_t reply_bytes_max = 16 * 1024;

  void feed(std::string_view bytes) { input_ += bytes; }
  // The next reply; nullopt: it is not complete. Errors: malformed bytes; every later call returns the error
  // too.
  Result<std::optional<LmtpReply>> next();
  // The number of received bytes that belong to no returned reply.
  std::size_t pending() const { return input_.size() + reply_.lines.size(); }

 private:
  Status take_line(std::string_view line, bool& complete);
  std::string input_;
  LmtpReply reply_;
  std::size_t bytes_ = 0;  // of its lines
};

}  // namespace twinloft::mail
