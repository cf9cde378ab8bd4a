// What a transaction is made of, shared by session/, userdb/, delivery/ and net/.
//
// session/ decides, net/ carries bytes, userdb/ answers who a recipient is, and delivery/ makes a message
// durable. UserDb::lookup and Deliverer are called on worker threads and may block; everything else never
// blocks.
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
#include "twinloft/lmtpd/proto/reply.h"

namespace twinloft::lmtpd {

enum class UserState {
  active,
  disabled,  // takes no mail: 550 5.2.1
  deferred,  // takes none now, while the mailbox is moved, for one: 450 4.2.1
};

// What the detail of an address (ann+lists@) does: nothing, or it names a folder (RFC 5233), if that is
// there, or made where it is missing.
enum class FoldersByDetail { none, existing, create };
Result<FoldersByDetail> parse_folders_by_detail(std::string_view text);  // "none", "existing", "create"

// What a mailbox may hold. 0: as much as there is room for.
struct QuotaLimit {
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
  bool unlimited() const { return bytes == 0 && messages == 0; }
  bool operator==(const QuotaLimit&) const = default;
};

// A row of the user database, checked (see userdb/): uid and gid are not 0, home is absolute and free of
// "..". Of a user with a next hop only the name, the state and that are looked at.
struct User {
  std::string name;  // canonical user name, what %user% expands to
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::string home;      // absolute
  std::string maildir;   // absolute; the Maildir that the built-in agent writes and Dovecot serves
  std::string agent;     // "maildir", or the name of an [agent.<name>] section; empty: the configured default
  std::string next_hop;  // the name of a [next_hop.<name>] section, which the mail is handed on to; empty: it
                         // is delivered here
  UserState state = UserState::active;
  QuotaLimit quota{};
  std::optional<FoldersByDetail> detail_folders{};  // nullopt: as is configured
  bool is_old = false;  // what the database has said before, while it gives no answer: no mail is refused for
                        // good by it
};

// An accepted forward-path. `text` is as the client sent it between the angle brackets; `domain` is in small
// letters, and A-labels.
struct Recipient {
  std::string text;
  std::string local_part;     // unquoted, without detail
  std::string detail;         // after the first delimiter ("+" by default), empty where there is none
  std::string domain;         // lower case, empty where there is none
  std::string original_to;    // ORCPT's address, empty where unknown
  std::string original_type;  // and its type: "rfc822", "utf-8"
  std::string notify;         // NOTIFY, empty where it was not given (RFC 3461)
  User user;
};

// Whom the MTA had it from (XFORWARD), for log lines. Empty: not said, or unknown to it.
struct Origin {
  std::string name, address, helo;
  std::string ident;  // the message's name in the MTA's own log
};

struct Envelope {
  std::string id;           // unique per transaction, in log lines, Received and %id%
  std::string from;         // reverse-path without brackets; empty: the null sender
  std::string lhlo;         // what the client called itself
  std::string client;       // client address, or "unix"
  std::string client_name;  // its host name, where a proxy has said it (XCLIENT)
  std::string tls;          // "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384"; empty: in clear
  Origin origin;
  bool body_8bitmime = false;
  bool smtputf8 = false;  // addresses and header fields may hold UTF-8 (RFC 6531)
  std::string ret;        // RET and ENVID, empty where they were not given (RFC 3461)
  std::string envelope_id;
  std::vector<Recipient> recipients;
};

// The message as received after dot-unstuffing, line ends CRLF as on the wire. Immutable once complete;
// shared by the deliveries of all recipients, which read it concurrently with pread.
struct MessageBody {
  std::string memory;      // the whole message where it fits the memory limit ...
  Fd file;                 // ... else an unlinked file that holds it
  std::uint64_t size = 0;  // bytes
  // CRC32C of what was written to the file; nullopt: it is not compared.
  std::optional<std::uint32_t> checksum = {};
  bool in_memory() const { return !file; }
};

struct LookupRequest {
  std::string local_part, detail, domain;  // as in Recipient
  std::uint64_t size = 0;                  // of the message, as MAIL has announced it; 0: it has not
};

struct Resolved {
  User user;
  std::optional<std::string> detail = {};  // where it is another one than that asked for: an alias has its
                                           // own, or has taken it
  std::optional<Reply> refusal = {};  // why no such message is accepted now, where another source than the
                                      // database says so
};

// nullopt: there is no such user (550 5.1.1). An error: the database cannot say (451 4.3.0), never a refusal.
using LookupResult = Result<std::optional<Resolved>>;

class UserDb {
 public:
  virtual ~UserDb() = default;
  virtual LookupResult lookup(const LookupRequest& request) = 0;
  // The answer where it is at hand; called on the thread that serves connections, and never blocks. nullopt:
  // lookup() is to be asked.
  virtual std::optional<LookupResult> lookup_now(const LookupRequest&) { return std::nullopt; }
};

inline constexpr std::uint32_t unlimited_deliveries = UINT32_MAX;

// How many deliveries there may be at once that have this name in common.
struct SharedLimit {
  std::string name;
  std::uint32_t most = unlimited_deliveries;
  std::string pool = {};  // several names may have one, with a limit for all of them; empty: none
  std::uint32_t pool_most = unlimited_deliveries;
};

// What bounds the deliveries to a user. What is beyond waits for its turn: it is not refused.
struct DeliveryLimits {
  std::uint32_t per_user_max = unlimited_deliveries;  // to this user at once
  SharedLimit shared{};                               // with other users: those of an agent, or of a next hop
};

// What makes a delivered message durable.
enum class MadeDurable {
  no,           // nothing: it is not delivered
  fsync,        // syncs of its file and of the directory that it is in
  group_sync,   // a syncfs that several deliveries share
  after_agent,  // likewise, after the agent has ended
  by_agent,     // the agent, whose section says that it syncs
  by_next_hop,  // the server that has accepted it
};
std::string_view to_string(MadeDurable how);  // "no", "fsync", "group-sync", "after-agent", ...

// What a delivery to one recipient did.
struct DeliveryOutcome {
  Reply reply;
  std::string detail = {};  // for the log: why it is not delivered, or what is worth knowing; may be empty
  std::string path = {};    // absolute, of the file that the built-in agent made; empty: there is none
  std::uint64_t bytes = 0;  // what was stored, or handed on, with the header fields of this delivery
  MadeDurable durable = MadeDurable::no;
};

// The reply for what has not begun, where it is not to begin any more, since nobody waits for it.
// Thread-safe, and never blocks.
using GivenUp = std::function<std::optional<Reply>()>;

class Deliverer {
 public:
  virtual ~Deliverer() = default;
  // The caller of deliver() keeps to them. Never blocks.
  virtual DeliveryLimits limits(const User&) const { return {}; }
  // Whether refusal() has anything to look at. Never blocks.
  virtual bool may_refuse(const User&) const { return false; }
  // Why a message of `size` (0: unknown) would not be delivered to that user with that detail, so that its
  // sender hears of it before sending it.
  virtual std::optional<Reply> refusal(const User&, const std::string& /*detail*/, std::uint64_t /*size*/) {
    return std::nullopt;
  }
  // Delivers to one recipient. Replies 2xx only after the promise of docs/ARCHITECTURE.md holds
  // for it; everything that could not be finished is 4xx, and then nothing of this delivery appears later.
  virtual DeliveryOutcome deliver(const Envelope& envelope, const Recipient& recipient,
                                  const MessageBody& body) = 0;
  // Users with one such name are delivered to together, by deliver_group(), since that costs little more than
  // to deliver to one. Empty: each by itself. Never blocks.
  virtual std::string group_of(const User&) const { return {}; }
  // deliver(), to several of the envelope's recipients; what became of each, in this order. Where it has
  // parts, one after the other, `given_up` is asked before each.
  virtual std::vector<DeliveryOutcome> deliver_group(const Envelope& envelope,
                                                     std::span<const std::size_t> recipients,
                                                     const MessageBody& body, const GivenUp& /*given_up*/) {
    std::vector<DeliveryOutcome> outcomes;
    for (std::size_t i : recipients) outcomes.push_back(deliver(envelope, envelope.recipients[i], body));
    return outcomes;
  }
};

}  // namespace twinloft::lmtpd
