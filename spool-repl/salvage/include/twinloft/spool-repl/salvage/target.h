// The target of a bundle's mail: the winner's Maildirs, or its LMTP server.
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
    deferred,   // refused temporarily: 4xx
    refused,    // refused permanently: 5xx
    unknown,    // sent, without a reply
    failed,     // not delivered, for the reason in `detail`
    away,       // not delivered, and nothing else can be delivered now
  };
  End end = End::failed;
  std::string detail;  // the server's reply, the file, or the error
};

class Target {
 public:
  virtual ~Target() = default;
  // address: of the user, for the LMTP server. content: the message's file in the bundle.
  virtual Sent deliver(const Message& message, const std::string& address, int content) = 0;
};

// Writes into the user's Maildir below the spool's root, as a delivery does: the file becomes durable in
// tmp/, is renamed into new/ or cur/, and the entry becomes durable. Folder, flags and time are kept. The
// file belongs to the Maildir's owner, and its name is made from the content. A missing folder is made in
// Maildir++ as of Dovecot. A missing Maildir is not made, since its user may have been removed. root and ops
// must outlive the target.
std::unique_ptr<Target> make_copy_target(int root, FileOps& ops);

struct LmtpServer {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string text;  // as the administrator has written it
};

struct LmtpOptions {
  std::string hostname = "localhost";        // for LHLO
  std::chrono::seconds timeout{300};         // for each read and each write
  std::chrono::seconds final_timeout{1200};  // for the reply to a message, since a spool may be suspended
};

// Delivers by LMTP (RFC 2033), with a transaction for each message from <>, so that a failure is reported
// here and causes no bounce. The content is unchanged, except for Delivered-To fields in its leading trace,
// which an LMTP server would treat as a loop.
std::unique_ptr<Target> make_lmtp_target(LmtpServer server, LmtpOptions options);

}  // namespace twinloft::repl::salvage
