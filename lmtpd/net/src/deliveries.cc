#include "deliveries.h"

#include <utility>
#include <vector>

#include "memory_patience.h"

namespace twinloft::lmtpd {

// mutex_ is held. The queue gives no more turns at once than there are threads.
void Deliveries::begin_some() {
  while (auto turn = queue_.next()) pool_.post([this, turn = std::move(*turn)] { run(turn); });
}

void Deliveries::run(const DeliveryQueue::Turn& turn) {
  (*turn.run)(turn.members);
  MemoryPatience patient;
  std::lock_guard lock(mutex_);
  queue_.ended(turn);
  begin_some();
}

// What throws within the queue would leave it in no state at all.
void Deliveries::post(QueuedDelivery delivery) {
  MemoryPatience patient;
  std::lock_guard lock(mutex_);
  queue_.push(std::move(delivery));
  begin_some();
}

std::string Deliveries::drop(const void* owner) {
  MemoryPatience patient;
  std::vector<QueuedDelivery> dropped;  // what they hold dies outside of the lock
  std::lock_guard lock(mutex_);
  std::string hindrance = queue_.hindrance(owner);
  dropped = queue_.drop(owner);
  return hindrance;
}

}  // namespace twinloft::lmtpd
