#include "transaction.h"

#include <algorithm>
#include <exception>
#include <unordered_map>
#include <utility>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

Transaction::Transaction(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<BodyStore> body,
                         DeliveriesDone done)
    : hub_(hub),
      envelope_(std::move(envelope)),
      body_(std::move(body)),
      done_(std::move(done)),
      replies_(envelope_->recipients.size()),
      missing_(replies_.size()) {
  std::unordered_map<std::string_view, std::size_t> lane_of;
  for (std::size_t i = 0; i < replies_.size(); ++i) {
    auto [at, is_new] = lane_of.try_emplace(envelope_->recipients[i].user.name, lanes_.size());
    if (is_new) lanes_.emplace_back();
    lanes_[at->second].recipients.push_back(i);
  }
}

void Transaction::start() {
  std::size_t threads = std::min<std::size_t>(lanes_.size(), std::max(1u, hub_.config.deliveries_per_transaction_max));
  for (std::size_t i = 0; i < threads; ++i) hub_.deliveries.post(this, [self = shared_from_this()] { self->work(); });
}

void Transaction::work() {
  while (Lane* lane = take_lane())
    for (std::size_t i; begin(*lane, i);) finish(i, deliver_one(envelope_->recipients[i]));
}

Transaction::Lane* Transaction::take_lane() {
  std::lock_guard lock(mutex_);
  return lanes_taken_ < lanes_.size() ? &lanes_[lanes_taken_++] : nullptr;
}

bool Transaction::begin(Lane& lane, std::size_t& recipient) {
  std::lock_guard lock(mutex_);
  if (given_up_ || lane.next == lane.recipients.size()) return false;
  recipient = lane.recipients[lane.next++];
  hub_.deliveries_begun.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Transaction::finish(std::size_t recipient, Reply reply) {
  bool last;
  {
    std::lock_guard lock(mutex_);
    replies_[recipient] = std::move(reply);
    last = --missing_ == 0;
  }
  hub_.deliveries_begun.fetch_sub(1, std::memory_order_relaxed);
  if (last) report();
}

void Transaction::give_up_waiting(const Reply& reply, std::string_view why) {
  std::size_t count = 0;
  bool last;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(given_up_, true)) return;
    for (const Lane& lane : lanes_)
      for (std::size_t i = lane.next; i < lane.recipients.size(); ++i, ++count) replies_[lane.recipients[i]] = reply;
    if (count == 0) return;
    missing_ -= count;
    last = missing_ == 0;
  }
  hub_.deliveries.drop(this);
  log_warning("{}: {} deliveries were not begun: {}", envelope_->id, count, why);
  if (last) report();
}

// By the one who has set the last reply: nobody else looks at these members any more.
void Transaction::report() {
  body_.reset();  // its memory is free before the client knows
  DeliveriesDone done = std::move(done_);
  done(std::move(replies_));
}

Reply Transaction::deliver_one(const Recipient& recipient) {
  try {
    return hub_.deliverer.deliver(*envelope_, recipient, body_->body());
  } catch (const std::exception& e) {
    log_error("{}: delivery to {} failed unexpectedly: {}", envelope_->id, recipient.user.name, e.what());
  } catch (...) {
    log_error("{}: delivery to {} failed unexpectedly", envelope_->id, recipient.user.name);
  }
  return {451, "4.3.0", "Delivery failed, try again later"};
}

}  // namespace twinloft::lmtpd
