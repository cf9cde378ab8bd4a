#include "transaction.h"

#include <algorithm>
#include <exception>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

Transaction::Transaction(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<BodyStore> body,
                         DeliveriesDone done)
    : hub_(hub),
      envelope_(std::move(envelope)),
      body_(std::move(body)),
      done_(std::move(done)),
      replies_(envelope_->recipients.size()),
      missing_(replies_.size()) {}

void Transaction::start() {
  std::size_t threads = std::min<std::size_t>(envelope_->recipients.size(),
                                              std::max(1u, hub_.config.deliveries_per_transaction_max));
  for (std::size_t i = 0; i < threads; ++i) hub_.deliveries.post(this, [self = shared_from_this()] { self->work(); });
}

void Transaction::work() {
  for (std::size_t i; begin(i);) finish(i, deliver_one(envelope_->recipients[i]));
}

bool Transaction::begin(std::size_t& recipient) {
  std::lock_guard lock(mutex_);
  if (next_ == envelope_->recipients.size()) return false;
  recipient = next_++;
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
  std::size_t count;
  bool last;
  {
    std::lock_guard lock(mutex_);
    count = envelope_->recipients.size() - next_;
    if (count == 0) return;
    std::fill(replies_.begin() + static_cast<std::ptrdiff_t>(next_), replies_.end(), reply);
    next_ += count;
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
