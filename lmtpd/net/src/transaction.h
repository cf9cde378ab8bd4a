// The deliveries of one message: each recipient on its own, several at once, on worker threads. Recipients
// who are one user (details, aliases, duplicates) come one after the other. Those of a group are delivered to
// by one call. When each of them begins, so that no limit is passed, is the queue's matter
// (delivery_queue.h).
//
// A delivery waits for its turn, begins, and ends. What waits can be given up at any moment, from any thread,
// also while every worker is stuck: it is never begun then, so a 4xx for it is safe. What has begun is waited
// for: its file may exist already.
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
  Transaction(Hub& hub, std::shared_ptr<const Envelope> envelope, std::shared_ptr<BodyStore> body,
              DeliveriesDone done);

  // Delivers to every recipient, then calls `done`.
  void start();
  // No delivery begins any more; those that have not get `reply`. `why` is for the log. Thread-safe. Where
  // nothing is left to be waited for, `done` is called from within. Of a group that has begun what follows
  // gets `reply` too, where it is cut short.
  enum class Begun { goes_on, cut_short };
  void give_up_waiting(const Reply& reply, std::string_view why, Begun begun);
  // Nothing is waited for any more: what has begun gets `reply` too, and what becomes of it nobody learns. It
  // may have been stored, or may yet be, so the process is to end. Thread-safe.
  void abort(const Reply& reply, std::string_view why);

 private:
  // One user's recipients, or those of a group (Deliverer::group_of).
  struct Lane {
    bool together = false;                          // by one call
    std::vector<std::vector<std::size_t>> members;  // the recipients of each of its users
    QueuedDelivery queued;
  };
  void add_to_lane(std::size_t recipient, std::unordered_map<std::string, std::size_t>& lane_of);
  static std::vector<std::size_t> recipients_of(const Lane& lane, const std::vector<std::size_t>& members);
  void run(const Lane& lane, const std::vector<std::size_t>& members);
  void deliver_to(const Lane& lane, std::span<const std::size_t> some);
  std::shared_ptr<BodyStore> begin(std::span<const std::size_t> some);
  Reply as_told(const Recipient& recipient, Reply reply) const;
  void finish(std::span<const std::size_t> recipients, std::vector<Reply> replies);
  std::vector<Reply> deliver(const Lane& lane, std::span<const std::size_t> some, const MessageBody& body);
  std::size_t settle_rest(const Reply& reply, bool begun_too);
  void report();

  Hub& hub_;  // outlives it
  const std::shared_ptr<const Envelope> envelope_;
  DeliveriesDone done_;
  std::mutex mutex_;                 // of what follows
  std::shared_ptr<BodyStore> body_;  // gone once reported; deliveries that are under way then hold it
  std::vector<std::optional<Reply>> replies_;
  std::vector<bool> begun_;        // by recipient
  std::vector<Lane> lanes_;        // in the order of their first recipients; never changed once started
  bool given_up_ = false;          // nothing begins any more
  std::optional<Reply> for_rest_;  // of groups that have begun, where nobody waits for them
  std::size_t missing_ = 0;        // replies
};

}  // namespace twinloft::lmtpd
