// Answers the questions of a session: who a recipient is (UserDb), whether a mailbox has room for the message
// (Mailboxes), and what the filters say (FilterSession).
//
// An answer from memory comes at once, on the asking thread. All other work may block, and runs on worker
// threads. Look-ups, mailboxes and filters have separate threads, so that a hanging database does not delay
// mailboxes, and the reverse.
//
// An exception of the user database counts as a failed look-up, and one of a filter as 451. An exception of
// Mailboxes refuses nothing, because the delivery checks again.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "hub.h"
#include "twinloft/lmtpd/session/question.h"

namespace twinloft::lmtpd {

// Called once, on a worker thread. Must not throw.
using Answered = std::function<void(Answer)>;

// Of one connection, and of its thread. The hub must outlive it.
class Questions {
 public:
  explicit Questions(Hub& hub) : hub_(hub) {}

  // The filters hear the complete message on a worker thread, which then calls `filtered`.
  using Filtered = std::function<void(FilteredMessage)>;
  void filter(std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body, Filtered filtered);
  // The filters forget the transaction. Not while they are asked.
  void forget_transaction();
  // Later questions go to new connections. The filters may be at work on another thread, which then ends
  // early; otherwise they still hear that the transaction has ended.
  void leave_filters(bool at_work);
  // The connection ends: answers become the filters' default actions at once.
  void hurry_filters();

  // The answer, if it is in memory. nullopt: the function from `make_answered` gets the answer later.
  template <class MakeAnswered>
  std::optional<Answer> ask(Question question, MakeAnswered make_answered) {
    std::optional<Answer> known = std::visit([this](const auto& q) { return known_now(q); }, question);
    if (!known) std::visit([&](auto& q) { find_out(std::move(q), make_answered()); }, question);
    return known;
  }

 private:
  std::optional<Answer> known_now(const LookupRequest& request);
  std::optional<Answer> known_now(const MailboxQuestion& question);
  std::optional<Answer> known_now(const FilterCommand& command);
  void find_out(LookupRequest request, Answered answered);
  void find_out(MailboxQuestion question, Answered answered);
  void find_out(FilterCommand command, Answered answered);
  const std::shared_ptr<FilterSession>& filters();

  Hub& hub_;
  std::shared_ptr<FilterSession> filters_;  // null: not asked yet
};

}  // namespace twinloft::lmtpd
