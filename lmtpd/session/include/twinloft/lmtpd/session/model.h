// The parts of a transaction, for session/, userdb/, delivery/ and net/.
//
// session/ speaks to the client, policy/ decides who may receive, net/ transfers bytes, userdb/ finds the
// user of a recipient, and delivery/ makes a message durable. UserDb::lookup(), Mailboxes::look() and
// Deliverer are called on worker threads, and may block. All other functions do not block.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/recipient.h"
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

// An accepted forward-path.
struct Recipient : KnownRecipient {
  std::string original_to;    // ORCPT's address; empty if unknown
  std::string original_type;  // and its type: "rfc822", "utf-8"
  std::string notify;         // NOTIFY (RFC 3461); empty if absent
};

// The client of the MTA (XFORWARD), for log lines. Empty: not sent, or unknown.
struct Origin {
  std::string name, address, port, helo;
  std::string ident;  // the message's name in the MTA's own log
};

// What all recipients of a transaction share.
struct EnvelopeHead {
  std::string id;           // unique per transaction, in log lines, Received and %id%
  std::string from;         // reverse-path without brackets; empty: the null sender
  std::string lhlo;         // the client's name in LHLO
  std::string client;       // client address, or "unix"
  std::string client_name;  // the client's host name from a proxy (XCLIENT); may be empty
  std::string tls;          // "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384"; empty: without TLS
  Origin origin;
  bool body_8bitmime = false;
  bool smtputf8 = false;  // addresses and header fields may contain UTF-8 (RFC 6531)
  std::string ret;        // RET and ENVID (RFC 3461); empty if absent
  std::string envelope_id;
};

struct Envelope : EnvelopeHead {
  std::vector<Recipient> recipients = {};
};

// The message after dot-unstuffing, with CRLF line ends. Immutable once it is complete. The deliveries of all
// recipients read it at the same time, by pread(2).
struct MessageBody {
  std::string memory;      // the message, if it is within the memory limit
  Fd file;                 // otherwise an unlinked file with the message
  std::uint64_t size = 0;  // bytes
  // CRC32C of the file's content; nullopt: not compared.
  std::optional<std::uint32_t> checksum = {};
  bool in_memory() const { return !file; }
};

inline constexpr std::uint32_t unlimited_deliveries = UINT32_MAX;

// The limit of simultaneous deliveries with the same name.
struct SharedLimit {
  std::string name;
  std::uint32_t most = unlimited_deliveries;
  std::string pool = {};  // several names may share a pool, with a limit for all of them; empty: none
  std::uint32_t pool_most = unlimited_deliveries;
};

// The limits of deliveries to a user. Further deliveries wait, and are not refused.
struct DeliveryLimits {
  std::uint32_t per_user_max = unlimited_deliveries;  // to this user at a time
  SharedLimit shared{};                               // with other users of the same agent or next hop
};

// How a delivered message was made durable.
enum class MadeDurable {
  no,           // it is not delivered
  fsync,        // by syncs of its file and its directory
  group_sync,   // a syncfs that several deliveries share
  intake_log,   // a write of the intake log that several deliveries share
  after_agent,  // likewise, after the agent has ended
  by_agent,     // the agent, whose section says that it syncs
  by_next_hop,  // the server that has accepted it
};
std::string_view to_string(MadeDurable how);  // "no", "fsync", "group-sync", "after-agent", ...

// The outcome of a delivery to a recipient.
struct DeliveryOutcome {
  Reply reply;
  std::string detail = {};  // for the log: the reason of a failure, or a remark; may be empty
  std::string path = {};    // absolute, of the built-in agent's file; may be empty
  std::uint64_t bytes = 0;  // of the stored or forwarded message, with the header fields of this delivery
  MadeDurable durable = MadeDurable::no;
  // Nothing was done. The delivery goes on to this recipient, whose user has another agent or next hop. It
  // waits for their limits. Null: the reply is final.
  std::shared_ptr<const Recipient> elsewhere = {};
};

// The reply to a delivery that must not begin any more, since its client no longer waits. nullopt: it may
// begin. Thread-safe. Does not block.
using GivenUp = std::function<std::optional<Reply>()>;

class Deliverer {
 public:
  virtual ~Deliverer() = default;
  // The limits, which the caller of deliver() keeps. Does not block.
  virtual DeliveryLimits limits(const User&) const { return {}; }
  // Delivers to a recipient. The reply is 2xx only if the message is durable as docs/ARCHITECTURE.md says. A
  // delivery that could not be completed is 4xx, and has no later effect.
  virtual DeliveryOutcome deliver(const Envelope& envelope, const Recipient& recipient,
                                  const MessageBody& body) = 0;
  // The name of the user's group. A message for users of the same group is delivered by one deliver_group(),
  // which costs little more than one delivery. Empty: no group. Does not block.
  virtual std::string group_of(const User&) const { return {}; }
  // As deliver(), to several of the envelope's recipients. Returns the outcomes in this order. If the
  // delivery has several parts, `given_up` is called before each.
  virtual std::vector<DeliveryOutcome> deliver_group(const Envelope& envelope,
                                                     std::span<const std::size_t> recipients,
                                                     const MessageBody& body, const GivenUp& /*given_up*/) {
    std::vector<DeliveryOutcome> outcomes;
    for (std::size_t i : recipients) outcomes.push_back(deliver(envelope, envelope.recipients[i], body));
    return outcomes;
  }
};

}  // namespace twinloft::lmtpd
