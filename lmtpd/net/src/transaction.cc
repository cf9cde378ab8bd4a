#include "transaction.h"

#include <algorithm>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

Transaction::Transaction(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<BodyStore> body,
                         DeliveriesDone done)
    : hub_(hub),
      envelope_(std::move(envelope)),
      done_(std::move(done)),
      body_(std::move(body)),
      replies_(envelope_->recipients.size()),
      missing_(replies_.size()) {
  std::unordered_map<std::string, std::size_t> lane_of;  // by group, or by user
  for (std::size_t i = 0; i < replies_.size(); ++i) {
    std::string group = hub_.deliverer.group_of(envelope_->recipients[i].user);
    bool together = !group.empty();
    auto [at, is_new] = lane_of.try_emplace(together ? "group " + group : "user " + envelope_->recipients[i].user.name, lanes_.size());
    if (is_new) lanes_.emplace_back();
    lanes_[at->second].recipients.push_back(i);
    lanes_[at->second].together = together;
    if (!is_new || together) continue;
    auto limit = hub_.deliverer.shared_limit(envelope_->recipients[i].user);
    if (limit) lanes_.back().shared = &shared_.try_emplace(limit->name, Shared{limit->most}).first->second;
  }
}

void Transaction::start() {
  std::size_t threads = std::min<std::size_t>(lanes_.size(), std::max(1u, hub_.config.deliveries_per_transaction_max));
  for (std::size_t i = 0; i < threads; ++i) hub_.deliveries.post(this, [self = shared_from_this()] { self->work(); });
}

void Transaction::work() {
  while (Lane* lane = take_lane()) {
    std::span<const std::size_t> some;
    while (std::shared_ptr<BodyStore> body = begin(*lane, some)) {
      std::vector<Reply> replies = deliver(*lane, some, body->body());
      body.reset();
      finish(some, std::move(replies));
    }
    leave_lane(*lane);
  }
}

// Null: whatever is left waits for a lane that is under way, and is taken by the worker of that one.
Transaction::Lane* Transaction::take_lane() {
  std::lock_guard lock(mutex_);
  while (first_free_ < lanes_.size() && lanes_[first_free_].taken) ++first_free_;
  for (std::size_t i = first_free_; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.taken || (lane.shared && lane.shared->taken >= lane.shared->most)) continue;
    lane.taken = true;
    if (lane.shared) ++lane.shared->taken;
    return &lane;
  }
  return nullptr;
}

void Transaction::leave_lane(Lane& lane) {
  std::lock_guard lock(mutex_);
  if (lane.shared) --lane.shared->taken;
}

// The message, for the next recipient, or for all of a group; null: there is none.
std::shared_ptr<BodyStore> Transaction::begin(Lane& lane, std::span<const std::size_t>& some) {
  std::lock_guard lock(mutex_);
  if (given_up_ || lane.next == lane.recipients.size()) return nullptr;
  std::size_t count = lane.together ? lane.recipients.size() - lane.next : 1;
  some = std::span(lane.recipients).subspan(lane.next, count);
  lane.next += count;
  hub_.deliveries_begun.fetch_add(count, std::memory_order_relaxed);
  return body_;
}

// The row that led there may be another one by now.
Reply Transaction::as_told(const Recipient& recipient, Reply reply) const {
  if (reply.code < 500 || !recipient.user.is_old) return reply;
  log_warning("{}: {}: the client gets 451 and not {}, since the user database gives no answer, and what it has said before has led to this refusal", envelope_->id,
              recipient.text, reply.code);
  return {451, "4.3.0", "The user database gives no answer now"};
}

void Transaction::finish(std::span<const std::size_t> recipients, std::vector<Reply> replies) {
  bool last = false;
  for (std::size_t i = 0; i < recipients.size(); ++i) replies[i] = as_told(envelope_->recipients[recipients[i]], std::move(replies[i]));
  {
    std::lock_guard lock(mutex_);
    hub_.deliveries_begun.fetch_sub(recipients.size(), std::memory_order_relaxed);  // before the last reply can end the server
    for (std::size_t i = 0; i < recipients.size(); ++i) {
      if (replies_[recipients[i]]) continue;  // it was aborted
      replies_[recipients[i]] = std::move(replies[i]);
      last = --missing_ == 0;
    }
  }
  if (last) report();
}

// Returns how many there were.
std::size_t Transaction::settle_rest(const Reply& reply, bool begun_too) {
  std::size_t count = 0;
  given_up_ = true;
  for (const Lane& lane : lanes_)
    for (std::size_t i = begun_too ? 0 : lane.next; i < lane.recipients.size(); ++i)
      if (std::optional<Reply>& theirs = replies_[lane.recipients[i]]; !theirs) theirs = reply, ++count;
  missing_ -= count;
  return count;
}

void Transaction::give_up_waiting(const Reply& reply, std::string_view why, Begun begun) {
  std::size_t count;
  bool last;
  {
    std::lock_guard lock(mutex_);
    if (begun == Begun::cut_short && !for_rest_) for_rest_ = reply;
    if (given_up_ || (count = settle_rest(reply, false)) == 0) return;
    last = missing_ == 0;
  }
  hub_.deliveries.drop(this);
  log_warning("{}: {} deliveries were not begun: {}", envelope_->id, count, why);
  if (last) report();
}

void Transaction::abort(const Reply& reply, std::string_view why) {
  std::size_t count;
  {
    std::lock_guard lock(mutex_);
    if (!for_rest_) for_rest_ = reply;
    if ((count = settle_rest(reply, true)) == 0) return;
  }
  hub_.deliveries.drop(this);
  log_warning("{}: {} deliveries were aborted: {}", envelope_->id, count, why);
  report();
}

// By the one who has set the last reply. Threads whose deliveries were aborted may still come and look.
void Transaction::report() {
  std::vector<Reply> replies;
  {
    std::lock_guard lock(mutex_);
    body_.reset();  // its memory is free before the client knows
    for (std::optional<Reply>& reply : replies_) replies.push_back(std::move(*reply));
  }
  DeliveriesDone done = std::move(done_);
  done(std::move(replies));
}

// One reply for each, whatever becomes of it.
std::vector<Reply> Transaction::deliver(const Lane& lane, std::span<const std::size_t> some, const MessageBody& body) {
  const Recipient& first = envelope_->recipients[some.front()];
  try {
    std::vector<Reply> replies;
    if (lane.together) replies = hub_.deliverer.deliver_group(*envelope_, some, body, [this] {
        std::lock_guard lock(mutex_);
        return for_rest_;
      });
    else replies.push_back(hub_.deliverer.deliver(*envelope_, first, body));
    if (replies.size() == some.size()) return replies;
    log_error("{}: delivery to {} and others gave {} replies for {}", envelope_->id, first.user.name, replies.size(), some.size());
  } catch (const std::exception& e) {
    log_error("{}: delivery to {} failed unexpectedly: {}", envelope_->id, first.user.name, e.what());
  } catch (...) {
    log_error("{}: delivery to {} failed unexpectedly", envelope_->id, first.user.name);
  }
  return std::vector<Reply>(some.size(), {451, "4.3.0", "Delivery failed, try again later"});
}

}  // namespace twinloft::lmtpd
