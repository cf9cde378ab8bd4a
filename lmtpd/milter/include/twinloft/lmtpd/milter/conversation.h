// The dialogue with one filter over one connection as a state machine, without I/O.
//
//   new ──open()──▶ negotiating ──hear()──▶ ready ──say(Connect), say(Helo)──▶ ready
//   ready ──say(Mail)──▶ in a message ──say(EndOfBody), hear()──▶ ready
//   in a message ──abort()──▶ ready            any state ──an error of hear()──▶ broken
//
// Between say() and its verdict, the conversation awaits an answer. A filter that has accepted a client or a
// message early gets no further event of it. A filter that has refused a client keeps its verdict for each of
// the client's messages.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "twinloft/base/result.h"
#include "twinloft/lmtpd/milter/agreement.h"
#include "twinloft/lmtpd/milter/answers.h"
#include "twinloft/lmtpd/milter/events.h"

namespace twinloft::lmtpd::milter {

// What hear() has learned.
struct Ready {};  // the negotiation has succeeded
using Heard = std::variant<Ready, Progress, Change, Verdict>;

class Conversation {
 public:
  // The first bytes to the filter. Its answer goes to hear().
  std::string open();

  // Appends the event, with its macros, to `out`. The return value is the verdict, or nullopt: the filter
  // answers, and hear() returns the verdict. Only while ready or in a message, and not while an answer is
  // awaited.
  //
  // Order: Connect; Helo; then for each message Mail, Rcpt, Data, Header, EndOfHeaders, BodyChunk, EndOfBody.
  // Connect begins a client anew: only directly behind open(), or behind quit_for_another_client().
  std::optional<Verdict> say(const Event& event, const Macros& macros, std::string& out);

  // Whether say() would return nullopt for this event.
  bool would_answer(const Event& event) const;

  // The next packet of the filter. Errors (Errc::invalid): the packet is malformed, or not allowed here: no
  // answer is awaited, a change before the end of the message or without the right to make it, a Skip in a
  // wrong place. After an error, the conversation is broken: only a new connection can follow.
  Result<Heard> hear(const Packet& packet);

  // The filter forgets the message, if there is one. It does not answer.
  void abort(std::string& out);
  // Another client follows over the same connection. False: the filter is too old, and needs a new
  // connection.
  bool quit_for_another_client(std::string& out);
  void quit(std::string& out);

  // The filter has refused the client for now. This verdict stands until another client is said.
  bool has_deferred_client() const;
  bool awaits_answer() const { return std::holds_alternative<Awaiting>(state_); }
  bool is_broken() const { return std::holds_alternative<Broken>(state_); }
  bool in_message() const { return in_message_; }
  const Agreement& agreement() const { return agreement_; }

 private:
  struct New {};
  struct Negotiating {};
  struct Idle {};  // ready for an event
  struct Awaiting {
    char command = 0;  // of the event
  };
  struct Broken {};
  using State = std::variant<New, Negotiating, Idle, Awaiting, Broken>;

  Result<Heard> conclude(char command, Answer&& answer);
  Result<Heard> skip(char command);
  void take_verdict(char command, const Verdict& verdict);
  std::optional<Verdict> verdict_without_asking(const Event& event) const;

  State state_;
  Agreement agreement_;
  bool in_message_ = false;
  bool knows_message_ = false;              // the filter has got an event of the message
  std::optional<Verdict> client_verdict_;   // of the client; no event of this client is sent
  std::optional<Verdict> message_verdict_;  // of the message, likewise
  std::string skipped_;                     // the commands of which no more is wanted in this message
};

}  // namespace twinloft::lmtpd::milter
