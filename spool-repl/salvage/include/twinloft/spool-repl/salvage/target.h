// Where the mail of a bundle goes: into the winner's Maildirs, or to its LMTP server.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>

#include "twinloft/base/fd.h"
#include "twinloft/spool-repl/salvage/bundle.h"
#include "twinloft/spool-repl/salvage/file_ops.h"

namespace twinloft::repl::salvage {

struct Sent {
  enum class End : std::uint8_t {
    delivered,  // durable
    deferred,   // not delivered, and may be another time: 4xx
    refused,    // not delivered, and will not be: 5xx
    unknown,    // the message was handed over, and no reply came
    failed,     // not delivered; `detail` says why
    away,       // likewise, and nothing else can be delivered now
  };
  End end = End::failed;
  std::string detail;  // the server's reply, the file, or what went wrong
};

class Target {
 public:
  virtual ~Target() = default;
  // `address`: of the user, as the LMTP server knows it. `content`: the message's file in the bundle.
  virtual Sent deliver(const Message& message, const std::string& address, int content) = 0;
};

// Writes into the user's Maildir below the spool's root, like a delivery: tmp/, durable, renamed into new/ or
// cur/, durable. Folder, flags and time are kept; the file is the Maildir owner's and has a name of its own,
// made from the content. A folder that is not there is made, as Maildir++ and Dovecot have it; a Maildir is
// not, since its user may be gone. `root`, `ops`: outlive it.
std::unique_ptr<Target> make_copy_target(int root, FileOps& ops);

struct LmtpServer {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string text;  // as the administrator wrote it
};

struct LmtpOptions {
  std::string hostname = "localhost";        // said in LHLO
  std::chrono::seconds timeout{300};         // for the server's next bytes, and for it to take ours
  std::chrono::seconds final_timeout{1200};  // for the reply to a message: a spool may be suspended for a
                                             // while
};

// RFC 2033. One transaction a message, from <>: what can not be delivered is said here, and bounces to
// nobody. The content is sent as it is, but for Delivered-To fields in its leading trace: an LMTP server
// takes them for a loop.
std::unique_ptr<Target> make_lmtp_target(LmtpServer server, LmtpOptions options);

}  // namespace twinloft::repl::salvage
