#include "questions.h"

#include <fmt/format.h>

#include <exception>

#include "memory_patience.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// What `look` gives, or an error for what it throws.
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

bool may_be_refused(const Deliverer& deliverer, const LookupResult& found) {
  return found && *found && (*found)->user.state == UserState::active && deliverer.may_refuse((*found)->user);
}

// May block. What fails unexpectedly is no reason to refuse: the delivery will tell.
void add_refusal(Deliverer& deliverer, const LookupRequest& request, Resolved& found) {
  try {
    found.refusal = deliverer.refusal(found.user, found.detail.value_or(request.detail), request.size);
  } catch (const std::exception& e) {
    MemoryPatience patient;
    log_error("{}: whether mail would be refused: {}", found.user.name, e.what());
  } catch (...) {
    log_error("{}: whether mail would be refused: unknown exception", found.user.name);
  }
}

void look_for_room(Hub& hub, LookupRequest request, LookupResult found, Answered answered) {
  hub.rooms.post([&hub, request = std::move(request), found = std::move(found),
                  answered = std::move(answered)]() mutable {
    add_refusal(hub.deliverer, request, **found);
    answered(std::move(found));
  });
}

}  // namespace

std::optional<Answer> Questions::known_now(const LookupRequest& request) {
  auto found = looked_up([&] { return hub_.users.lookup_now(request); });
  if (!found) return std::nullopt;
  if (!*found) tell_failed_lookup(hub_, request, found->error());
  return Answer(std::move(*found));
}

// Where it is not, it lacks the refusal.
bool Questions::is_whole(const Answer& known) const {
  return !may_be_refused(hub_.deliverer, std::get<LookupResult>(known));
}

void Questions::find_out(Hub& hub, LookupRequest request, std::optional<Answer> known, Answered answered) {
  if (known)
    return look_for_room(hub, std::move(request), std::get<LookupResult>(std::move(*known)),
                         std::move(answered));
  hub.lookups.post([&hub, request = std::move(request), answered = std::move(answered)]() mutable {
    bool may_be = false;
    LookupResult found = looked_up([&] {
      LookupResult out = hub.users.lookup(request);
      may_be = may_be_refused(hub.deliverer, out);
      return out;
    });
    MemoryPatience patient;
    if (!found) tell_failed_lookup(hub, request, found.error());
    if (found && may_be) return look_for_room(hub, std::move(request), std::move(found), std::move(answered));
    answered(std::move(found));
  });
}

}  // namespace twinloft::lmtpd
