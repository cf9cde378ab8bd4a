// What sessions ask, and who knows the answers: today, who a recipient is, and whether that mailbox would
// refuse the message (UserDb, Deliverer).
//
// An answer from memory comes at once, on the thread that asks. Everything else may block, and is for worker
// threads. Look-ups and refusals have threads of their own: while a user database does not answer, users that
// are known go on, and the other way round. What throws is an answer too: the user database cannot say.
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
    if (known && is_whole(*known)) return known;
    std::visit([&](auto& q) { find_out(hub_, std::move(q), std::move(known), make_answered()); }, question);
    return std::nullopt;
  }

 private:
  std::optional<Answer> known_now(const LookupRequest& request);
  bool is_whole(const Answer& known) const;
  static void find_out(Hub& hub, LookupRequest request, std::optional<Answer> known, Answered answered);

  Hub& hub_;
};

}  // namespace twinloft::lmtpd
