// Answers the questions of sessions: who a recipient is (UserDb), and whether a mailbox has room for the
// message (Mailboxes).
//
// An answer from memory comes at once, on the asking thread. All other work may block, and runs on worker
// threads. Look-ups and mailboxes have separate threads, so that a hanging database does not delay mailboxes,
// and the reverse.
//
// An exception of the user database counts as a failed look-up. An exception of Mailboxes refuses nothing,
// because the delivery checks again.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "hub.h"
#include "twinloft/lmtpd/session/question.h"

namespace twinloft::lmtpd {

// Called once, on a worker thread. Must not throw.
using Answered = std::function<void(Answer)>;

// Thread-safe. The hub must outlive it.
class Questions {
 public:
  explicit Questions(Hub& hub) : hub_(hub) {}

  // The answer, if it is in memory. nullopt: the function from `make_answered` gets the answer later.
  template <class MakeAnswered>
  std::optional<Answer> ask(Question question, MakeAnswered make_answered) {
    std::optional<Answer> known = std::visit([this](const auto& q) { return known_now(q); }, question);
    if (!known) std::visit([&](auto& q) { find_out(hub_, std::move(q), make_answered()); }, question);
    return known;
  }

 private:
  std::optional<Answer> known_now(const LookupRequest& request);
  std::optional<Answer> known_now(const MailboxQuestion& question);
  static void find_out(Hub& hub, LookupRequest request, Answered answered);
  static void find_out(Hub& hub, MailboxQuestion question, Answered answered);

  Hub& hub_;
};

}  // namespace twinloft::lmtpd
