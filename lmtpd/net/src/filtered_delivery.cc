#include "filtered_delivery.h"

#include <algorithm>
#include <utility>

namespace twinloft::lmtpd {

namespace {

// The envelope with other recipients. Holds the original, whose memory is charged.
struct PartialEnvelope : Envelope {
  PartialEnvelope(std::shared_ptr<const Envelope> other, std::vector<Recipient>&& some)
      : Envelope{static_cast<const EnvelopeHead&>(*other), std::move(some)}, original(std::move(other)) {}
  std::shared_ptr<const Envelope> original;
};

}  // namespace

FilteredDelivery::FilteredDelivery(FilteredMessage::Passed&& passed, std::vector<Recipient>&& added)
    : envelope_(std::move(passed.envelope)), body_(std::move(passed.body)) {
  const std::size_t count = envelope_->recipients.size();
  replies_.assign(count, {250, "2.0.0",
                          passed.quarantined ? "Accepted for review"
                                             : "Not delivered: a filter has removed the recipient"});
  for (std::size_t i = 0; i < count; ++i)
    if (passed.removed.empty() || !passed.removed[i]) rest_.push_back(i);
  if (!added.empty()) added_ = std::make_shared<PartialEnvelope>(envelope_, std::move(added));
}

std::optional<FilteredDelivery::Stage> FilteredDelivery::begin() {
  return added_ ? Stage{added_, body_} : begin_rest();
}

std::optional<FilteredDelivery::Stage> FilteredDelivery::begin_rest() {
  if (rest_.empty()) return std::nullopt;
  if (rest_.size() == envelope_->recipients.size()) return Stage{envelope_, body_};
  std::vector<Recipient> recipients;
  for (std::size_t i : rest_) recipients.push_back(envelope_->recipients[i]);
  return Stage{std::make_shared<PartialEnvelope>(envelope_, std::move(recipients)), body_};
}

std::optional<FilteredDelivery::Stage> FilteredDelivery::take(const std::vector<Reply>& replies) {
  if (std::exchange(added_, nullptr)) {
    if (std::ranges::all_of(replies, [](const Reply& r) { return r.positive(); })) return begin_rest();
    replies_.assign(replies_.size(), {451, "4.3.0", "A copy that a filter wants cannot be delivered now"});
    return std::nullopt;
  }
  for (std::size_t i = 0; i < rest_.size(); ++i) replies_[rest_[i]] = replies[i];
  return std::nullopt;
}

}  // namespace twinloft::lmtpd
