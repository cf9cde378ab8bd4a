#include "transaction.h"

#include <algorithm>
#include <exception>

#include "twinloft/base/log.h"

namespace twinloft::lmtpd {

namespace {

struct Transaction {
  Hub& hub;
  std::shared_ptr<const Envelope> envelope;
  std::shared_ptr<BodyStore> body;
  std::shared_ptr<const std::atomic<bool>> gone;
  DeliveriesDone done;
  std::vector<Reply> replies;            // each written by the one thread that delivers it
  std::atomic<std::size_t> next{0};      // recipient to be taken
  std::atomic<std::size_t> missing{0};   // replies
};

Reply deliver_one(Transaction& t, const Recipient& recipient) {
  try {
    return t.hub.deliverer.deliver(*t.envelope, recipient, t.body->body());
  } catch (const std::exception& e) {
    log_error("{}: delivery to {} failed unexpectedly: {}", t.envelope->id, recipient.user.name, e.what());
  } catch (...) {
    log_error("{}: delivery to {} failed unexpectedly", t.envelope->id, recipient.user.name);
  }
  return {451, "4.3.0", "Delivery failed, try again later"};
}

// Takes recipients until none is left. Whoever writes the last reply reports.
void work(const std::shared_ptr<Transaction>& t) {
  const std::vector<Recipient>& recipients = t->envelope->recipients;
  for (std::size_t i; (i = t->next.fetch_add(1)) < recipients.size();) {
    t->replies[i] = t->gone->load() ? Reply{451, "4.3.0", "Not delivered: the client has left"}
                                    : deliver_one(*t, recipients[i]);
    if (t->missing.fetch_sub(1) != 1) continue;
    t->body.reset();  // its memory is free before the client knows
    DeliveriesDone done = std::move(t->done);
    done(std::move(t->replies));
  }
}

}  // namespace

void start_deliveries(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<BodyStore> body,
                      std::shared_ptr<const std::atomic<bool>> gone, DeliveriesDone done) {
  std::size_t recipients = envelope->recipients.size();
  auto t = std::make_shared<Transaction>(hub, std::move(envelope), std::move(body), std::move(gone), std::move(done));
  t->replies.resize(recipients);
  t->missing = recipients;
  std::size_t threads = std::min<std::size_t>(recipients, std::max(1u, hub.config.deliveries_per_transaction_max));
  for (std::size_t i = 0; i < threads; ++i) hub.deliveries.post([t] { work(t); });
}

}  // namespace twinloft::lmtpd
