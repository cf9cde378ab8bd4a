#include "questions.h"

#include <fmt/format.h>

#include <exception>

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

void Questions::find_out(Hub& hub, LookupRequest request, Answered answered) {
  hub.lookups.post([&hub, request = std::move(request), answered = std::move(answered)] {
    LookupResult found = looked_up([&] { return hub.users.lookup(request); });
    MemoryPatience patient;
    if (!found) tell_failed_lookup(hub, request, found.error());
    answered(std::move(found));
  });
}

void Questions::find_out(Hub& hub, MailboxQuestion question, Answered answered) {
  hub.rooms.post([&hub, question = std::move(question), answered = std::move(answered)] {
    answered(state_of(*hub.config.mailboxes, question));
  });
}

}  // namespace twinloft::lmtpd
