// One connection to an LMTP server, as far as bytes and replies go (RFC 5321 section 4.2, RFC 2033).
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/salvage/target.h"

namespace twinloft::repl::salvage {

struct Reply {
  int code = 0;      // 200..599
  std::string text;  // all lines, joined with "; ", printable
  bool good() const { return code < 300; }
  bool lasting() const { return code >= 500; }
};

class LmtpConnection {
 public:
  static Result<LmtpConnection> connect(const LmtpServer& server, const LmtpOptions& options);

  Status send(std::string_view bytes);
  // Errors: Errc::corrupt, no reply of this protocol; Errc::timeout; Errc::unavailable, the connection ended.
  Result<Reply> reply();
  Result<Reply> ask(std::string_view command);  // without its line end
  void set_reply_timeout(std::chrono::seconds timeout);

 private:
  explicit LmtpConnection(Fd fd) : fd_(std::move(fd)) {}
  Result<std::string> line();

  Fd fd_;
  std::string buffer_;
};

// CRLF line ends, and a dot before each that begins a line (RFC 5321 section 4.5.2), over any split.
class DotStuffer {
 public:
  void feed(std::string_view in, std::string& out);
  // What is missing to the last line's end, without the final dot.
  void finish(std::string& out);

 private:
  char last_ = '\n';
};

// As it stands in RCPT TO: a local part that is no dot-atom is quoted. Errors: Errc::invalid, an address that
// can not be written in ASCII.
Result<std::string> forward_path(const std::string& address);

}  // namespace twinloft::repl::salvage
