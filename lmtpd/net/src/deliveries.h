// The delivery threads, and the queue of waiting deliveries.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "delivery_queue.h"
#include "worker_pool.h"

namespace twinloft::lmtpd {

// Thread-safe.
class Deliveries {
 public:
  Deliveries(std::uint32_t threads, std::uint32_t per_owner_max)
      : queue_(threads, per_owner_max), pool_(threads) {}

  void post(QueuedDelivery delivery);
  // Removes the owner's deliveries that have not begun. Returns why they had to wait
  // (DeliveryQueue::hindrance).
  std::string drop(const void* owner);
  // Runs waiting deliveries, and ends the threads. No post() may follow.
  void finish() { pool_.finish(); }

 private:
  void begin_some();
  void run(const DeliveryQueue::Turn& turn);

  std::mutex mutex_;
  DeliveryQueue queue_;
  WorkerPool pool_;  // last: its threads use the rest
};

}  // namespace twinloft::lmtpd
