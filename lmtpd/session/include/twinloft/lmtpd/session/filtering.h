// Filters (milters) and a transaction: what the session asks them, and what they answer. lmtpd/filters has
// the filters themselves.
//
// The session asks at MAIL, RCPT and DATA. Its owner asks at the end of the message
// (FilterSession::finish()), before any delivery.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/lmtpd/proto/command.h"
#include "twinloft/lmtpd/session/model.h"

namespace twinloft::lmtpd {

// The client that filters hear of: that of the MTA (XCLIENT, XFORWARD). Without an address: unknown.
struct FilterClient {
  std::string name, address, helo;
  std::uint16_t port = 0;  // 0: unknown
  std::string tls;         // as Envelope::tls, if the client of the MTA is unknown
  bool operator==(const FilterClient&) const = default;
};

struct FilterMail {
  std::shared_ptr<const Envelope> envelope;  // without recipients
  FilterClient client;
  std::uint64_t size = 0;  // as announced by SIZE; 0: not announced
};
struct FilterRcpt {
  std::string recipient;  // as sent between the angle brackets
  std::vector<std::string> parameters;
  bool refused = false;  // by lmtpd; only filters that ask for it hear of it
};
struct FilterData {};
using FilterCommand = std::variant<FilterMail, FilterRcpt, FilterData>;

struct FilterVerdict {
  std::optional<Reply> refusal = {};  // nullopt: the command is accepted
  bool ends_connection = false;       // after the refusal
};

// A message that the owner stores (net/).
class StoredBody {
 public:
  virtual ~StoredBody() = default;
  // Errors: Errc::exhausted (a budget), Errc::io. After an error the body is lost.
  virtual Status append(std::string_view bytes) = 0;
  virtual const MessageBody& body() const = 0;
};
using MakeStoredBody = std::function<std::shared_ptr<StoredBody>()>;

// What becomes of a complete message.
struct FilteredMessage {
  struct Refused {
    Reply reply;  // for each recipient
    bool ends_connection = false;
  };
  struct Discarded {};  // 250 for each recipient
  struct AddedRecipient {
    Rcpt command;
    std::string filter;  // that adds it, for the log
  };
  struct Passed {
    std::shared_ptr<const Envelope> envelope;  // with all recipients of before
    std::vector<bool> removed;                 // by recipient; empty: none
    std::vector<AddedRecipient> added;
    std::shared_ptr<StoredBody> body;
    bool quarantined = false;  // all are removed, and the one that is added is the mailbox for such messages
  };
  std::variant<Refused, Discarded, Passed> what;
};

// The filters of one connection. One thread at a time calls its functions.
class FilterSession {
 public:
  virtual ~FilterSession() = default;
  // As answer(), if this needs no wait: the filters do not hear of the command, or do not answer it.
  virtual std::optional<FilterVerdict> answer_now(const FilterCommand& command) = 0;
  // Blocks; each filter has time limits.
  virtual FilterVerdict answer(const FilterCommand& command) = 0;
  // The message is complete. Blocks.
  virtual FilteredMessage finish(std::shared_ptr<const Envelope> envelope,
                                 std::shared_ptr<StoredBody> body) = 0;
  // The transaction has ended without a complete message. Does not block.
  virtual void forget() = 0;
  // No wait goes on: answers become the filters' default actions. From any thread.
  virtual void give_up() = 0;
};

// All filters of a server. Thread-safe.
class Filters {
 public:
  virtual ~Filters() = default;
  // Does not block. make_body: for messages that filters change; outlives the session.
  virtual std::shared_ptr<FilterSession> open(MakeStoredBody make_body) = 0;
  // As FilterSession::give_up(), for all sessions.
  virtual void give_up() = 0;
};

}  // namespace twinloft::lmtpd
