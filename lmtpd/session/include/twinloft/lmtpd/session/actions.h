// What a session wants done: a list, carried out from its first item to its last.
//
// Of one message: BeginBody, then BodyBytes as often as need be, then Deliver or AbortBody. After Ask or
// Deliver nothing follows before the owner has answered, but AbortBody, SendBytes and Close where the session
// ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "twinloft/base/bytes.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/session/question.h"

namespace twinloft::lmtpd {

// To the client. Never empty.
struct SendBytes {
  std::string bytes;
};

// What was refused, for the log.
struct Refused {
  enum class What { sender, recipient, message, connection };
  What what = What::recipient;
  std::string id;      // of the transaction; empty: there is none
  std::string client;  // its address
  std::string from;
  std::string to;  // a message's first recipient
  Reply reply;
};

// A message starts.
struct BeginBody {
  std::uint64_t size_hint = 0;  // what SIZE announced; 0: it did not
};

// The next bytes of the message. At least one piece; valid until the session's next event.
struct BodyBytes {
  std::vector<ByteSpan> pieces;
};

// The message is to be forgotten: it is too large, the owner cannot keep it, or the client left.
struct AbortBody {};

// To be answered with Session::answer().
struct Ask {
  QuestionId id = 0;
  Question question;
};

// The message is complete. Session::delivery_done() for each recipient, in any order.
struct Deliver {
  std::shared_ptr<const Envelope> envelope;
};

// Once everything before it was sent. Then Session::tls_started(), or the connection's end.
struct BeginTls {};

// Once everything before it was sent.
struct Close {};

using Action = std::variant<SendBytes, Refused, BeginBody, BodyBytes, AbortBody, Ask, Deliver, BeginTls,
                            Close>;
using Actions = std::vector<Action>;

// One function object of several, for std::visit.
template <class... Fs>
struct Visitor : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Visitor(Fs...) -> Visitor<Fs...>;

}  // namespace twinloft::lmtpd
