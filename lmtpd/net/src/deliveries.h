// The threads that deliver, and the queue of what waits for them.
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
  // Forgets the owner's deliveries that have not begun, and says what has kept them
  // (DeliveryQueue::hindrance).
  std::string drop(const void* owner);
  // Runs what waits, and ends the threads. Nothing may be posted any more.
  void finish() { pool_.finish(); }

 private:
  void begin_some();
  void run(const DeliveryQueue::Turn& turn);

  std::mutex mutex_;
  DeliveryQueue queue_;
  WorkerPool pool_;  // last: its threads use the rest
};

}  // namespace twinloft::lmtpd
