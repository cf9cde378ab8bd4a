// Replies of a next hop, and what they are for our client.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

struct HopReply {
  int code = 0;                    // 200..599
  std::vector<std::string> lines;  // without the code; at least one
  bool positive() const { return code >= 200 && code < 300; }
  std::string text() const;  // "550 5.1.1 no such user", for messages
};

// Takes bytes in any split.
class ReplyParser {
 public:
  static constexpr std::size_t line_bytes_max = 2048;  // RFC 5321 section 4.5.3.1.5 has 512
  static constexpr std::size_t lines_max = 128;
  static constexpr std::size_t reply_bytes_max = 16 * 1024;

  void feed(std::string_view bytes) { input_ += bytes; }
  // The next one; nullopt: it has not come as a whole. The error says why it is none, and stays.
  Result<std::optional<HopReply>> next();
  // What has come and belongs to no reply taken yet, in bytes.
  std::size_t pending() const { return input_.size() + reply_.lines.size(); }

 private:
  Status take_line(std::string_view line, bool& complete);
  std::string input_;
  HopReply reply_;
  std::size_t bytes_ = 0;  // of its lines
};

// What the hop has answered.
enum class Stage {
  sender,     // MAIL
  recipient,  // RCPT
  body,       // DATA
  message,    // the message's end
};
// 2xx, 4xx and 5xx are passed on, with the hop's enhanced code and text. But a 5xx which says that we have
// spoken badly to it, or may not speak to it at all, is the fault of nobody's message, and becomes 451; and
// 421 does, which to our client would be the end of its connection.
Reply reply_of_hop(const HopReply& reply, Stage stage);

}  // namespace twinloft::lmtpd
