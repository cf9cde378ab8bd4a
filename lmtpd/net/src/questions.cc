#include "questions.h"

#include <fmt/format.h>

#include <exception>

#include "added_recipients.h"
#include "memory_patience.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// Returns the result of `look`. An exception becomes an error.
template <class Look>
auto looked_up(Look look) -> decltype(look()) {
  try {
    return look();
  } catch (const std::exception& e) {
    MemoryPatience patient;
    return LookupResult(fail(Errc::internal, "unexpectedly: {}", e.what()));
  } catch (...) {
    MemoryPatience patient;
    return LookupResult(fail(Errc::internal, "unexpectedly"));
  }
}

void tell_failed_lookup(Hub& hub, const LookupRequest& request, const Error& error) {
  hub.lookups_failed.put(
      LogLevel::error, hub.clock.now(),
      fmt::format("look-up of {}@{}: {}", request.local_part, request.domain, error.message));
}

MailboxState state_of(Mailboxes& mailboxes, const MailboxQuestion& question) {
  try {
    return mailboxes.look(question.user, question.detail, question.size);
  } catch (const std::exception& e) {
    MemoryPatience patient;
    log_error("{}: mailbox check failed: {}", question.user.name, e.what());
  } catch (...) {
    log_error("{}: mailbox check failed: unknown exception", question.user.name);
  }
  return {};
}

}  // namespace

std::optional<Answer> Questions::known_now(const LookupRequest& request) {
  auto found = looked_up([&] { return hub_.users.lookup_now(request); });
  if (!found) return std::nullopt;
  if (!*found) tell_failed_lookup(hub_, request, found->error());
  return Answer(std::move(*found));
}

std::optional<Answer> Questions::known_now(const MailboxQuestion& question) {
  auto state = hub_.config.mailboxes->look_now(question.user, question.size);
  return state ? std::optional<Answer>(std::move(*state)) : std::nullopt;
}

void Questions::find_out(LookupRequest request, Answered answered) {
  hub_.lookups.post([&hub = hub_, request = std::move(request), answered = std::move(answered)] {
    LookupResult found = looked_up([&] { return hub.users.lookup(request); });
    MemoryPatience patient;
    if (!found) tell_failed_lookup(hub, request, found.error());
    answered(std::move(found));
  });
}

void Questions::find_out(MailboxQuestion question, Answered answered) {
  hub_.rooms.post([&hub = hub_, question = std::move(question), answered = std::move(answered)] {
    answered(state_of(*hub.config.mailboxes, question));
  });
}

// ---- filters

namespace {

Reply filters_failed() {
  return {451, "4.3.0", "The filters failed, try again later"};
}
Reply filters_busy() {
  return {451, "4.3.2", "The filters take too long now, try again later"};
}

template <class Ask, class Otherwise>
auto answer_of_filters(Ask& ask, Otherwise& otherwise) -> decltype(ask()) {
  try {
    return ask();
  } catch (const std::exception& e) {
    MemoryPatience patient;
    log_error("filters failed unexpectedly: {}", e.what());
  } catch (...) {
    log_error("filters failed unexpectedly");
  }
  MemoryPatience patient;
  return otherwise(filters_failed());
}

// Runs `ask` on a thread for filters, and passes its result to `tell`. `otherwise` makes the result if all of
// the threads are busy for too long, or an exception comes. `tell` is called once.
template <class Ask, class Otherwise, class Tell>
std::shared_ptr<WaitingForFilters> ask_filters(Hub& hub, Ask ask, Otherwise otherwise, Tell tell) {
  auto run = [&hub, ask = std::move(ask), otherwise = std::move(otherwise),
              tell = std::move(tell)](bool given_up) mutable {
    if (!given_up) return tell(answer_of_filters(ask, otherwise));
    hub.messages_put_off.put(LogLevel::error, hub.clock.now(),
                             "a message is deferred: all threads for filters are busy (filters.threads)");
    tell(otherwise(filters_busy()));
  };
  auto waiting = std::make_shared<WaitingForFilters>(std::move(run));
  hub.filters.post([waiting] { waiting->begin(); });
  return waiting;
}

}  // namespace

const std::shared_ptr<FilterSession>& Questions::filters() {
  if (!filters_)
    filters_ = hub_.config.filters->open(
        [&hub = hub_] { return std::make_shared<BodyStore>(hub.body_limits, hub.budget); });
  return filters_;
}

std::optional<Answer> Questions::known_now(const FilterCommand& command) {
  std::optional<FilterVerdict> verdict = filters()->answer_now(command);
  if (!verdict) return std::nullopt;
  return Answer(std::move(*verdict));
}

void Questions::find_out(FilterCommand command, Answered answered) {
  waiting_ = ask_filters(
      hub_, [filters = filters(), command = std::move(command)] { return filters->answer(command); },
      [](Reply reply) { return FilterVerdict{std::move(reply)}; }, std::move(answered));
}

namespace {

// The look-ups of recipients that filters add may block too.
Questions::Filtered look_up_added(Hub& hub, FilteredMessage&& message) {
  const auto* passed = std::get_if<FilteredMessage::Passed>(&message.what);
  if (!passed || passed->added.empty()) return {std::move(message)};
  auto added = find_added(hub, *passed);
  if (!added) return {{FilteredMessage::Refused{std::move(added).error()}}};
  return {std::move(message), std::move(*added)};
}

}  // namespace

void Questions::filter(std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body,
                       FilteringDone done) {
  waiting_ = ask_filters(
      hub_,
      [&hub = hub_, filters = filters(), envelope = std::move(envelope), body = std::move(body)] {
        return look_up_added(hub, filters->finish(envelope, body));
      },
      [](Reply reply) { return Filtered{{FilteredMessage::Refused{std::move(reply)}}}; }, std::move(done));
}

void Questions::give_up_waiting() {
  if (waiting_) waiting_->give_up();
}

void Questions::leave_filters(bool at_work) {
  if (at_work)
    hurry_filters();
  else
    forget_transaction();
  filters_.reset();
}

void Questions::hurry_filters() {
  if (filters_) filters_->give_up();
}

void Questions::forget_transaction() {
  if (filters_) filters_->forget();
}

}  // namespace twinloft::lmtpd
