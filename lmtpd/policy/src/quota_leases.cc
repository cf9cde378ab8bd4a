#include "twinloft/lmtpd/policy/quota_leases.h"

#include <algorithm>
#include <utility>

#include "twinloft/base/check.h"

namespace twinloft::lmtpd {

namespace {

constexpr std::uint32_t shrink_shift = 2;  // to a quarter

}  // namespace

QuotaLeases::Account& QuotaLeases::enter(Request& request) {
  if (request.account_) return *request.account_;
  auto [at, is_new] = accounts_.try_emplace(request.user_);
  Account& account = at->second;
  if (!is_new && account.requests == 0) idle_.erase(account.idle);
  ++account.requests;
  request.account_ = &account;
  return account;
}

// Bytes of the lease to ask for. 0: none.
std::uint64_t QuotaLeases::lease_size(Account& account, const Request& request, Instant now) const {
  if (request.limit_.messages != 0) return 0;  // a lease says nothing about a number of messages
  for (; account.shrunk > 0 && now >= account.grows_at; --account.shrunk)
    account.grows_at = account.grows_at + rules_.shrunk_for;
  if (account.shrunk >= rules_.shrinks_max) return 0;
  const std::uint64_t limit = request.limit_.bytes;
  const std::uint64_t whole = limit == 0 ? rules_.bytes_unknown : limit / rules_.share;
  return std::min(whole, rules_.bytes_max) >> (shrink_shift * account.shrunk);
}

bool QuotaLeases::covers(const Account& account, const QuotaLimit& limit, std::uint64_t bytes,
                         Instant now) const {
  return limit.messages == 0 && now < account.until && account.left >= bytes && account.messages_left > 0;
}

bool QuotaLeases::covers(const User& user, std::uint64_t bytes, Instant now) const {
  auto found = accounts_.find(user.name);
  return found != accounts_.end() && covers(found->second, user.quota, bytes, now);
}

bool QuotaLeases::is_nearly_used(const Account& account, Instant now) const {
  return now >= account.renew_from &&
         (account.left < account.size / 4 || account.messages_left < rules_.messages_max / 4);
}

bool QuotaLeases::draw(Account& account, Request& request) {
  if (account.left < request.bytes_ || account.messages_left == 0) return false;
  account.left -= request.bytes_;
  --account.messages_left;
  account.drawn_bytes += request.bytes_;
  ++account.drawn_messages;
  account.held += request.bytes_;
  request.held_ = request.bytes_;
  return true;
}

// What was drawn from the lease before, since the question, comes off this lease.
void QuotaLeases::grant(Account& account, const Request& request) {
  const std::uint64_t bytes = account.drawn_bytes - request.drawn_bytes_;
  const std::uint64_t messages = account.drawn_messages - request.drawn_messages_;
  account.size = request.lease_;
  account.left = request.lease_ - std::min(request.lease_, bytes);
  account.messages_left = rules_.messages_max -
                          static_cast<std::uint32_t>(std::min<std::uint64_t>(rules_.messages_max, messages));
  account.until = request.asked_at_ + rules_.lives;
}

void QuotaLeases::shrink(Account& account, Instant now) const {
  account.shrunk = std::min(account.shrunk + 1, rules_.shrinks_max);
  account.grows_at = now + rules_.shrunk_for;
}

QuotaLeases::Step QuotaLeases::begin(Request& request, Instant now) {
  Account& account = enter(request);
  const bool looks = request.purpose_ == For::look;
  const std::uint64_t size = lease_size(account, request, now);
  if (covers(account, request.limit_, request.bytes_, now)) {
    if (looks) return Done{Room::enough};
    draw(account, request);
    // Renewed early only if otherwise others would soon wait.
    if (account.requests < 2 || account.asked || size == 0 || !is_nearly_used(account, now))
      return Done{Room::enough};
    return ask_lease(account, request, size, Request::Stage::renewal, now);
  }
  const bool leases = request.bytes_ <= size;
  if (looks && (!leases || request.waited_)) return ask_itself(account, request);
  if (account.asked) {
    request.waited_ = true;
    return Wait{};
  }
  if (!leases) return ask_itself(account, request);
  return ask_lease(account, request, size, Request::Stage::lease, now);
}

// The service does not count the deliveries in flight yet, so the question includes them.
QuotaLeases::Step QuotaLeases::ask_lease(Account& account, Request& request, std::uint64_t size,
                                         Request::Stage stage, Instant now) {
  account.asked = request.asks_ = true;
  request.stage_ = stage;
  request.lease_ = size;
  request.asked_at_ = now;
  request.drawn_bytes_ = account.drawn_bytes;
  request.drawn_messages_ = account.drawn_messages;
  return Ask{size + account.held};
}

// What is left of a lease is given up, since the answer would not include it.
QuotaLeases::Step QuotaLeases::ask_itself(Account& account, Request& request) {
  request.stage_ = Request::Stage::itself;
  if (request.purpose_ == For::look) return Ask{request.bytes_};
  account.asked = request.asks_ = true;
  account.left = 0;
  request.others_ = account.held;
  return Ask{request.bytes_ + request.others_};
}

QuotaLeases::Step QuotaLeases::answered(Request& request, const Result<Room>& answer, Instant now) {
  using Stage = Request::Stage;
  TL_CHECK(request.account_ && request.stage_ != Stage::begun);
  Account& account = *request.account_;
  if (request.stage_ == Stage::itself) return itself_answered(account, request, answer);
  if (request.stage_ != Stage::alone) return lease_answered(account, request, answer, now);
  if (!answer || *answer != Room::enough) return done(account, request, answer);
  // Dovecot's largest size of a message refused the sum, and there may be room for each of them.
  if (request.sum_is_too_large_) {
    account.held += request.bytes_;
    request.held_ = request.bytes_;
    return done(account, request, Room::enough);
  }
  return done(account, request,
              fail(Errc::exhausted, "no room is left: deliveries in flight hold {} bytes", request.others_));
}

QuotaLeases::Step QuotaLeases::lease_answered(Account& account, Request& request, const Result<Room>& answer,
                                              Instant now) {
  const bool granted = answer && *answer == Room::enough;
  if (granted) grant(account, request);
  if (answer && !granted) shrink(account, now);
  if (request.stage_ == Request::Stage::renewal) {  // its message has room already
    if (!granted) account.renew_from = now + rules_.renewal_pause;
    return done(account, request, Room::enough);
  }
  if (!answer) return done(account, request, answer);
  if (granted && (request.purpose_ == For::look || draw(account, request)))
    return done(account, request, Room::enough);
  return ask_itself(account, request);
}

QuotaLeases::Step QuotaLeases::itself_answered(Account& account, Request& request,
                                               const Result<Room>& answer) {
  if (!answer || request.purpose_ == For::look) return done(account, request, answer);
  if (*answer == Room::enough) {
    account.held += request.bytes_;
    request.held_ = request.bytes_;
    return done(account, request, Room::enough);
  }
  if (request.others_ == 0) return done(account, request, answer);
  // Deliveries in flight may still fail, so they cause only a temporary refusal.
  // A sum beyond the limit itself is too large too, and says nothing of a largest size.
  const std::uint64_t limit = request.limit_.bytes;
  request.sum_is_too_large_ = *answer == Room::never &&
                              (limit == 0 || request.bytes_ + request.others_ <= limit);
  request.stage_ = Request::Stage::alone;
  return Ask{request.bytes_};
}

QuotaLeases::Step QuotaLeases::done(Account& account, Request& request, Result<Room> room) {
  if (std::exchange(request.asks_, false)) account.asked = false;
  return Done{std::move(room)};
}

void QuotaLeases::end(Request& request, Instant now) {
  Account* account = std::exchange(request.account_, nullptr);
  if (!account) return;
  if (std::exchange(request.asks_, false)) account->asked = false;
  account->held -= std::exchange(request.held_, 0);
  if (--account->requests > 0) return;
  auto at = accounts_.find(request.user_);
  if ((account->left == 0 || now >= account->until) && account->shrunk == 0) {
    accounts_.erase(at);
    return;
  }
  account->idle = idle_.insert(idle_.begin(), &at->first);
  if (idle_.size() <= rules_.idle_max) return;
  accounts_.erase(accounts_.find(*idle_.back()));
  idle_.pop_back();
}

}  // namespace twinloft::lmtpd
