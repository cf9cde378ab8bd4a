// What sessions ask, and who knows the answers: who a recipient is (UserDb), and whether a mailbox takes the
// message (Mailboxes).
//
// An answer from memory comes at once, on the thread that asks. Everything else may block, and is for worker
// threads. Look-ups and mailboxes have threads of their own: while a user database does not answer, users
// that are known go on, and the other way round. What throws is an answer too: the user database cannot say,
// and a mailbox refuses nothing, since the delivery will tell.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "hub.h"
#include "twinloft/lmtpd/session/question.h"

namespace twinloft::lmtpd {

// Called once, on a worker thread. Must not throw.
using Answered = std::function<void(Answer)>;

// Thread-safe. The hub outlives it.
class Questions {
 public:
  explicit Questions(Hub& hub) : hub_(hub) {}

  // The answer where it is at hand. nullopt: what `make_answered` returns gets it.
  template <class MakeAnswered>
  std::optional<Answer> ask(Question question, MakeAnswered make_answered) {
    std::optional<Answer> known = std::visit([this](const auto& q) { return known_now(q); }, question);
    if (!known) std::visit([&](auto& q) { find_out(hub_, std::move(q), make_answered()); }, question);
    return known;
  }

 private:
  std::optional<Answer> known_now(const LookupRequest& request);
  static std::optional<Answer> known_now(const MailboxQuestion&) { return std::nullopt; }
  static void find_out(Hub& hub, LookupRequest request, Answered answered);
  static void find_out(Hub& hub, MailboxQuestion question, Answered answered);

  Hub& hub_;
};

}  // namespace twinloft::lmtpd
