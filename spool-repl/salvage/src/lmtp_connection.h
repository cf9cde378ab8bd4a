// A connection to an LMTP server: its bytes and replies (RFC 5321 section 4.2, RFC 2033).
#pragma once

#include <string>
#include <string_view>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/mail/lmtp_reply.h"
#include "twinloft/spool-repl/salvage/target.h"

namespace twinloft::repl::salvage {

// All lines, joined with "; ", printable.
std::string text_of(const mail::LmtpReply& reply);

class LmtpConnection {
 public:
  static Result<LmtpConnection> connect(const LmtpServer& server, const LmtpOptions& options);

  Status send(std::string_view bytes);
  // Errors: Errc::corrupt (not a reply of this protocol), Errc::timeout, Errc::unavailable (the connection
  // has ended).
  Result<mail::LmtpReply> reply();
  Result<mail::LmtpReply> ask(std::string_view command);  // without its line end
  void set_reply_timeout(std::chrono::seconds timeout);

 private:
  explicit LmtpConnection(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
  mail::LmtpReplyParser replies_;
};

// The address for RCPT TO: a local-part that is not a dot-atom is quoted. Errors: Errc::invalid (the address
// cannot be written in ASCII).
Result<std::string> forward_path(const std::string& address);

}  // namespace twinloft::repl::salvage
