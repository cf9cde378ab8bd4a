// The actions of a session: a list that the owner carries out in order.
//
// One message is BeginBody, then any number of BodyBytes, then Deliver or AbortBody. After Ask or Deliver, no
// action follows until the owner has answered. If the session ends meanwhile, AbortBody, ForgetTransaction,
// SendBytes and Close may follow.
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

// A refusal, for the log.
struct Refused {
  enum class What { sender, recipient, message, connection };
  What what = What::recipient;
  std::string id;      // of the transaction; empty: no transaction
  std::string client;  // its address
  std::string from;
  std::string to;  // for a message: its first recipient
  Reply reply;
};

// A message starts.
struct BeginBody {
  std::uint64_t size_hint = 0;  // as announced by SIZE; 0: not announced
};

// The next bytes of the message. At least one piece; valid until the session's next event.
struct BodyBytes {
  std::vector<ByteSpan> pieces;
};

// The owner discards the message: it is too large, it cannot be stored, or the client disconnected.
struct AbortBody {};

// The owner answers with Session::answer().
struct Ask {
  QuestionId id = 0;
  Question question;
};

// The message is complete. The owner calls Session::delivery_done() for each recipient, in any order.
struct Deliver {
  std::shared_ptr<const Envelope> envelope;
};

// The transaction has ended without a delivery: its filters forget it.
struct ForgetTransaction {};

// The owner starts the TLS handshake when all earlier bytes are sent. If the handshake succeeds, the owner
// calls Session::tls_started(). Otherwise it closes the connection.
struct BeginTls {};

// The owner closes the connection when all earlier bytes are sent.
struct Close {};

using Action = std::variant<SendBytes, Refused, BeginBody, BodyBytes, AbortBody, Ask, Deliver,
                            ForgetTransaction, BeginTls, Close>;
using Actions = std::vector<Action>;

// Combines several function objects into one, for std::visit.
template <class... Fs>
struct Visitor : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Visitor(Fs...) -> Visitor<Fs...>;

}  // namespace twinloft::lmtpd
