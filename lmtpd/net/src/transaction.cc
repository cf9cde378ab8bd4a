#include "transaction.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>

#include "memory_patience.h"
#include "twinloft/base/log.h"
#include "twinloft/lmtpd/policy/judge.h"

namespace twinloft::lmtpd {

Transaction::Transaction(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body,
                         DeliveriesDone done)
    : hub_(hub),
      envelope_(std::move(envelope)),
      done_(std::move(done)),
      body_(std::move(body)),
      replies_(envelope_->recipients.size()),
      begun_(replies_.size(), false),
      missing_(replies_.size()) {
  std::unordered_map<std::string, std::size_t> lane_of;  // by group, or by user
  for (std::size_t i = 0; i < replies_.size(); ++i) add_to_lane(i, lane_of);
}

void Transaction::add_to_lane(std::size_t recipient, std::unordered_map<std::string, std::size_t>& lane_of) {
  const User& user = envelope_->recipients[recipient].user;
  std::string group = hub_.deliverer.group_of(user);
  bool together = !group.empty();
  auto [at, is_new] = lane_of.try_emplace(together ? "group " + group : "user " + user.name, lanes_.size());
  if (is_new) {
    DeliveryLimits limits = hub_.deliverer.limits(user);
    lanes_.push_back(std::make_shared<Lane>(
        Lane{together, {}, {this, std::move(limits.shared), limits.per_user_max, {}, nullptr}, envelope_}));
  }
  Lane& lane = *lanes_[at->second];
  // A group's members are in the order of their first recipients.
  auto [place, first] = lane_of.try_emplace(fmt::format("member {} {}", at->second, user.name),
                                            lane.members.size());
  if (first) {
    lane.members.emplace_back();
    lane.queued.users.push_back(user.name);
  }
  lane.members[place->second].push_back(recipient);
}

void Transaction::start() {
  for (std::shared_ptr<Lane>& lane : lanes_) post(lane);
}

void Transaction::post(std::shared_ptr<Lane> lane) {
  QueuedDelivery queued = std::move(lane->queued);
  queued.run = std::make_shared<const QueuedDelivery::Run>(
      [self = shared_from_this(), lane = std::move(lane)](const std::vector<std::size_t>& members) {
        self->run(*lane, members);
      });
  hub_.deliveries.post(std::move(queued));
}

std::vector<std::size_t> Transaction::recipients_of(const Lane& lane,
                                                    const std::vector<std::size_t>& members) {
  MemoryPatience patient;
  std::vector<std::size_t> recipients;
  for (std::size_t member : members)
    recipients.insert(recipients.end(), lane.members[member].begin(), lane.members[member].end());
  std::ranges::sort(recipients);
  return recipients;
}

void Transaction::run(const Lane& lane, const std::vector<std::size_t>& members) {
  std::vector<std::size_t> recipients = recipients_of(lane, members);
  std::vector<Moved> moved;
  if (lane.together) deliver_to(lane, recipients, moved);
  for (std::size_t i = 0; i < recipients.size() && !lane.together; ++i)
    deliver_to(lane, std::span(recipients).subspan(i, 1), moved);
  if (!moved.empty()) go_on(moved);
}

void Transaction::deliver_to(const Lane& lane, std::span<const std::size_t> some, std::vector<Moved>& moved) {
  std::shared_ptr<StoredBody> body = begin(lane, some);
  if (!body) return;
  std::vector<DeliveryOutcome> outcomes = deliver(lane, some, body->body());
  body.reset();
  finish(lane, some, std::move(outcomes), moved);
}

// The recipients of one user are in one lane, in their order.
std::vector<std::shared_ptr<Transaction::Lane>> Transaction::lanes_for(const std::vector<Moved>& moved) {
  std::vector<std::shared_ptr<Lane>> lanes;
  std::unordered_map<std::string, std::size_t> lane_of;  // by user
  std::vector<std::shared_ptr<Envelope>> envelopes;
  for (const Moved& one : moved) {
    const User& user = one.recipient->user;
    auto [at, is_new] = lane_of.try_emplace(user.name, lanes.size());
    if (is_new) {
      DeliveryLimits limits = hub_.deliverer.limits(user);
      envelopes.push_back(std::make_shared<Envelope>(Envelope{static_cast<const EnvelopeHead&>(*envelope_)}));
      lanes.push_back(std::make_shared<Lane>(
          Lane{!hub_.deliverer.group_of(user).empty(),
               {{}},
               {this, std::move(limits.shared), limits.per_user_max, {user.name}, nullptr},
               envelopes.back()}));
    }
    Lane& lane = *lanes[at->second];
    std::vector<Recipient>& recipients = envelopes[at->second]->recipients;
    lane.members.front().push_back(recipients.size());
    lane.places.push_back(one.place);
    recipients.push_back(*one.recipient);
  }
  return lanes;
}

// Posts these deliveries again. An exception on this thread would end the process.
void Transaction::go_on(const std::vector<Moved>& moved) {
  MemoryPatience patient;
  std::vector<std::shared_ptr<Lane>> lanes;
  try {
    lanes = lanes_for(moved);
  } catch (const std::exception& e) {
    log_error("{}: {} deliveries cannot go on elsewhere: {}", envelope_->id, moved.size(), e.what());
    for (const Moved& one : moved) settle(one.place, {451, "4.3.0", "Delivery failed, try again later"});
    return;
  }
  // With the lock, so that drop() of a transaction that is given up meanwhile finds them. They have replies
  // then.
  std::lock_guard lock(mutex_);
  if (given_up_) return;
  for (std::shared_ptr<Lane>& lane : lanes) post(std::move(lane));
}

void Transaction::settle(std::size_t place, Reply reply) {
  {
    std::lock_guard lock(mutex_);
    if (replies_[place]) return;  // the delivery was given up
    replies_[place] = std::move(reply);
    if (--missing_ > 0) return;
  }
  report();
}

// Marks the deliveries as begun, and returns the message. null: the deliveries were given up.
std::shared_ptr<StoredBody> Transaction::begin(const Lane& lane, std::span<const std::size_t> some) {
  std::lock_guard lock(mutex_);
  if (given_up_) return nullptr;
  for (std::size_t recipient : some) begun_[lane.place_of(recipient)] = true;
  hub_.deliveries_begun.fetch_add(some.size(), std::memory_order_relaxed);
  return body_;
}

// A refusal based on a stale user row must not be permanent: the row may have changed since.
Reply Transaction::as_told(const Recipient& recipient, Reply reply) const {
  const int code = reply.code;
  reply = as_sure_as(recipient.user, std::move(reply));
  if (reply.code != code)
    log_warning(
        "{}: {}: reply {} instead of {}: the refusal rests on a stale row, and the user database does not "
        "answer",
        envelope_->id, recipient.text, reply.code, code);
  return reply;
}

void Transaction::finish(const Lane& lane, std::span<const std::size_t> some,
                         std::vector<DeliveryOutcome> outcomes, std::vector<Moved>& moved) {
  MemoryPatience patient;
  bool last = false;
  for (std::size_t i = 0; i < some.size(); ++i)
    outcomes[i].reply = as_told(lane.envelope->recipients[some[i]], std::move(outcomes[i].reply));
  {
    std::lock_guard lock(mutex_);
    // Counted before the last reply is set, because the last reply can end the server.
    hub_.deliveries_begun.fetch_sub(some.size(), std::memory_order_relaxed);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::size_t place = lane.place_of(some[i]);
      if (replies_[place]) continue;  // the delivery was aborted
      if (outcomes[i].elsewhere && !given_up_) {
        begun_[place] = false;
        moved.push_back({place, std::move(outcomes[i].elsewhere)});
        continue;
      }
      replies_[place] = outcomes[i].elsewhere ? *given_up_ : std::move(outcomes[i].reply);
      last = --missing_ == 0;
    }
  }
  if (last) report();
}

// Sets the reply of every delivery that has none and may be given up. Returns their number.
std::size_t Transaction::settle_rest(const Reply& reply, bool begun_too) {
  std::size_t count = 0;
  if (!given_up_) given_up_ = reply;
  for (std::size_t i = 0; i < replies_.size(); ++i)
    if (!replies_[i] && (begun_too || !begun_[i])) replies_[i] = reply, ++count;
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
  std::string hindrance = hub_.deliveries.drop(this);
  if (!hindrance.empty()) hindrance.insert(0, "; ");
  log_warning("{}: {} deliveries were not begun: {}{}", envelope_->id, count, why, hindrance);
  if (last) report();
}

void Transaction::abort(const Reply& reply, std::string_view why) {
  std::size_t count;
  {
    std::lock_guard lock(mutex_);
    if (!for_rest_) for_rest_ = reply;
    if ((count = settle_rest(reply, true)) == 0) return;
  }
  (void)hub_.deliveries.drop(this);
  log_warning("{}: {} deliveries were aborted: {}", envelope_->id, count, why);
  report();
}

// Called by the thread that has set the last reply. Threads of aborted deliveries may still call finish().
void Transaction::report() {
  MemoryPatience patient;
  std::vector<Reply> replies;
  {
    std::lock_guard lock(mutex_);
    body_.reset();  // frees the memory before the client gets the replies
    for (std::optional<Reply>& reply : replies_) replies.push_back(std::move(*reply));
  }
  DeliveriesDone done = std::move(done_);
  done(std::move(replies));
}

// Returns one outcome per recipient, also after an exception.
std::vector<DeliveryOutcome> Transaction::deliver(const Lane& lane, std::span<const std::size_t> some,
                                                  const MessageBody& body) {
  const Envelope& envelope = *lane.envelope;
  const Recipient& first = envelope.recipients[some.front()];
  try {
    std::vector<DeliveryOutcome> outcomes;
    outcomes.reserve(some.size());  // no allocation may fail after the message is delivered
    auto given_up = [this] {
      std::lock_guard lock(mutex_);
      return for_rest_;
    };
    if (lane.together)
      outcomes = hub_.deliverer.deliver_group(envelope, some, body, given_up);
    else
      outcomes.push_back(hub_.deliverer.deliver(envelope, first, body));
    if (outcomes.size() == some.size()) return outcomes;
    log_error("{}: delivery to {} and others gave {} replies for {}", envelope.id, first.user.name,
              outcomes.size(), some.size());
  } catch (const std::exception& e) {
    MemoryPatience patient;
    log_error("{}: delivery to {} failed unexpectedly: {}", envelope.id, first.user.name, e.what());
  } catch (...) {
    MemoryPatience patient;
    log_error("{}: delivery to {} failed unexpectedly", envelope.id, first.user.name);
  }
  MemoryPatience patient;
  return std::vector<DeliveryOutcome>(some.size(), {{451, "4.3.0", "Delivery failed, try again later"}});
}

}  // namespace twinloft::lmtpd
