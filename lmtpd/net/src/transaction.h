// The deliveries of one message on worker threads: each recipient separately, several at once. Recipients of
// the same user (details, aliases, duplicates) are served one after the other. Users of a group are served by
// one call. The queue decides when each delivery begins (delivery_queue.h).
//
// A delivery waits for its turn, begins, and ends. A waiting delivery can be given up at any time, by any
// thread, even while every worker is blocked. It then never begins, so a 4xx is safe. A delivery that has
// begun is awaited, because its file may already exist.
//
// A delivery may find that it goes on elsewhere (DeliveryOutcome::elsewhere). It then waits again, for the
// limits of that agent or next hop, and can be given up again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "body_store.h"
#include "hub.h"

namespace twinloft::lmtpd {

// Called once, on the thread that gave the last reply, with a reply for each recipient in the order of the
// recipients; destroyed there after the call.
using DeliveriesDone = std::function<void(std::vector<Reply>)>;

class Transaction : public std::enable_shared_from_this<Transaction> {
 public:
  // The envelope has at least one recipient.
  Transaction(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<StoredBody> body,
              DeliveriesDone done);

  // Delivers to every recipient, then calls `done`.
  void start();
  // No further delivery begins: waiting deliveries get `reply`. `why` is for the log. If no delivery is in
  // flight, `done` is called from here. With cut_short, the recipients of a begun group whose turn has not
  // come get `reply` too. Thread-safe.
  enum class Begun { goes_on, cut_short };
  void give_up_waiting(const Reply& reply, std::string_view why, Begun begun);
  // Waits for no delivery: those in flight get `reply` too, and their outcome is unknown. The message may be
  // stored already or later, so the process must end. Thread-safe.
  void abort(const Reply& reply, std::string_view why);

 private:
  // One user's recipients, or those of a group (Deliverer::group_of).
  struct Lane {
    bool together = false;                          // a group, served by one call
    std::vector<std::vector<std::size_t>> members;  // the recipients of each of its users
    QueuedDelivery queued;
    std::shared_ptr<const Envelope> envelope;  // with these recipients
    std::vector<std::size_t> places = {};      // their places in envelope_; empty: the same
    std::size_t place_of(std::size_t recipient) const {
      return places.empty() ? recipient : places[recipient];
    }
  };
  // A delivery that goes on elsewhere.
  struct Moved {
    std::size_t place = 0;  // in envelope_
    std::shared_ptr<const Recipient> recipient;
  };
  void add_to_lane(std::size_t recipient, std::unordered_map<std::string, std::size_t>& lane_of);
  static std::vector<std::size_t> recipients_of(const Lane& lane, const std::vector<std::size_t>& members);
  void post(std::shared_ptr<Lane> lane);
  void run(const Lane& lane, const std::vector<std::size_t>& members);
  void deliver_to(const Lane& lane, std::span<const std::size_t> some, std::vector<Moved>& moved);
  void go_on(const std::vector<Moved>& moved);
  std::vector<std::shared_ptr<Lane>> lanes_for(const std::vector<Moved>& moved);
  void settle(std::size_t place, Reply reply);
  std::shared_ptr<StoredBody> begin(const Lane& lane, std::span<const std::size_t> some);
  Reply as_told(const Recipient& recipient, Reply reply) const;
  void finish(const Lane& lane, std::span<const std::size_t> some, std::vector<DeliveryOutcome> outcomes,
              std::vector<Moved>& moved);
  std::vector<DeliveryOutcome> deliver(const Lane& lane, std::span<const std::size_t> some,
                                       const MessageBody& body);
  std::size_t settle_rest(const Reply& reply, bool begun_too);
  void report();

  Hub& hub_;  // must outlive this object
  const std::shared_ptr<const Envelope> envelope_;
  DeliveriesDone done_;
  std::mutex mutex_;                  // for the members below
  std::shared_ptr<StoredBody> body_;  // null once reported; deliveries in flight hold references of their own
  std::vector<std::optional<Reply>> replies_;
  std::vector<bool> begun_;                   // by recipient
  std::vector<std::shared_ptr<Lane>> lanes_;  // in the order of their first recipients; for start()
  std::optional<Reply> given_up_;             // no further delivery begins: its reply
  std::optional<Reply> for_rest_;             // reply for the remaining recipients of groups that have begun
  std::size_t missing_ = 0;                   // replies
};

}  // namespace twinloft::lmtpd
