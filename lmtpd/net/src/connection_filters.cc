// A complete message with the filters, and its deliveries in stages.
//
// While the filters have a message, nothing of it is delivered. If the client leaves or the server stops, the
// message is given up at once, and later results of the filters are ignored.
#include <exception>
#include <utility>

#include "connection.h"
#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

// Beyond, a reply of many lines for each recipient would need much memory.
constexpr std::size_t recipients_with_long_replies_max = 50;

}  // namespace

bool Connection::on(const ForgetTransaction&) {
  if (!filters_are_at_work()) questions_.forget_transaction();
  return false;
}

void Connection::begin_filters(BodyUpload::Whole whole) {
  with_filters_ = whole.envelope;
  questions_.filter(
      whole.envelope, std::move(whole.store),
      [self = shared_from_this(), envelope = whole.envelope](Questions::Filtered result) mutable {
        finish_task(std::move(self), [envelope, result = std::move(result)](Connection& c) mutable {
          if (c.with_filters_ == envelope) c.filtered(std::move(result));
        });
      });
  ++tasks_;
  limit_wait_for_filters();
}

// Queued deliveries use the same timer later.
void Connection::limit_wait_for_filters() {
  queue_timer_.expires_after(hub_.config.queue_time);
  queue_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (!cancelled) self->safely([&] { self->questions_.give_up_waiting(); });
  });
}

void Connection::filtered(Questions::Filtered&& result) {
  queue_timer_.cancel();
  patience_.note_progress(hub_.clock.now());
  with_filters_.reset();
  std::visit([&](auto&& what) { filtered(std::move(what), std::move(result.added)); },
             std::move(result.message.what));
}

void Connection::filtered(FilteredMessage::Refused&& refused, std::vector<Recipient>&&) {
  if (refused.ends_connection) session_.close_after_replies();
  if (session_.recipients() > recipients_with_long_replies_max) refused.reply.further.clear();
  end_message(std::vector<Reply>(session_.recipients(), refused.reply));
}

void Connection::filtered(FilteredMessage::Discarded&&, std::vector<Recipient>&&) {
  end_message(std::vector<Reply>(session_.recipients(), {250, "2.0.0", "Discarded by a filter"}));
}

void Connection::filtered(FilteredMessage::Passed&& passed, std::vector<Recipient>&& added) {
  stages_.emplace(std::move(passed), std::move(added));
  begin_stage(stages_->begin());
}

void Connection::begin_stage(std::optional<FilteredDelivery::Stage>&& stage) {
  if (stage) return begin_deliveries(std::move(stage->envelope), std::move(stage->body));
  std::vector<Reply> replies = std::move(*stages_).replies();
  stages_.reset();
  end_message(replies);
}

// The filters may be at work, so the next message gets new connections to them.
void Connection::give_up_filters(const Reply& reply) {
  log_warning("{}: no delivery was begun: {}", with_filters_->id, reply.text);
  drop_filters();
  end_message(std::vector<Reply>(session_.recipients(), reply));
}

bool Connection::filters_are_at_work() const {
  return with_filters_ || (asked_ && asked_->of_filters);
}

void Connection::drop_filters() {
  const bool at_work = filters_are_at_work();
  stages_.reset();
  with_filters_.reset();
  questions_.leave_filters(at_work);
}

}  // namespace twinloft::lmtpd
