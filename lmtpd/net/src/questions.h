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

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "hub.h"
#include "twinloft/lmtpd/session/question.h"

namespace twinloft::lmtpd {

// A question to the filters, until a thread begins with it. Thread-safe.
class WaitingForFilters {
 public:
  // run: called once, with whether the question was given up, and destroyed on the same thread.
  explicit WaitingForFilters(std::function<void(bool given_up)> run) : run_(std::move(run)) {}
  void begin() { end(false); }
  void give_up() { end(true); }

 private:
  void end(bool given_up) {
    if (ended_.exchange(true)) return;
    auto run = std::exchange(run_, nullptr);
    run(given_up);
  }

  std::atomic<bool> ended_{false};
  std::function<void(bool)> run_;
};

// Called once, on a worker thread. Must not throw.
using Answered = std::function<void(Answer)>;

// Of one connection, and of its thread. The hub must outlive it.
class Questions {
 public:
  explicit Questions(Hub& hub) : hub_(hub) {}

  // The filters hear the complete message on a worker thread, which then calls `done`. `added`: the
  // recipients that filters add, with their users.
  struct Filtered {
    FilteredMessage message;
    std::vector<Recipient> added = {};
  };
  using FilteringDone = std::function<void(Filtered)>;
  void filter(std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body, FilteringDone done);
  // The filters forget the transaction. Not while they are asked.
  void forget_transaction();
  // The present question to the filters has waited for a thread for too long. It is answered with 451, unless
  // a thread has begun with it.
  void give_up_waiting();
  // Later questions go to new connections. The filters may be at work on another thread, which then ends
  // early; otherwise they still hear that the transaction has ended.
  void leave_filters(bool at_work);
  // The connection ends: answers become the filters' default actions at once.
  void hurry_filters();

  // The answer, if it is in memory. nullopt: the function from `make_answered` gets the answer later.
  template <class MakeAnswered>
  std::optional<Answer> ask(Question question, MakeAnswered make_answered) {
    std::optional<Answer> known = std::visit([this](const auto& q) { return this->known_now(q); }, question);
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
  std::shared_ptr<FilterSession> filters_;      // null: not asked yet
  std::shared_ptr<WaitingForFilters> waiting_;  // the last question to them; null: none so far
};

}  // namespace twinloft::lmtpd
