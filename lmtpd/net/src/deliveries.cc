#include "deliveries.h"

#include <utility>
#include <vector>

#include "memory_patience.h"

namespace twinloft::lmtpd {

// The caller holds mutex_. The queue gives at most one turn per thread, so no task waits in the pool.
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

// An exception inside the queue would leave it inconsistent, so allocations wait for memory.
void Deliveries::post(QueuedDelivery delivery) {
  MemoryPatience patient;
  std::lock_guard lock(mutex_);
  queue_.push(std::move(delivery));
  begin_some();
}

std::string Deliveries::drop(const void* owner) {
  MemoryPatience patient;
  std::vector<QueuedDelivery> dropped;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  std::string hindrance = queue_.hindrance(owner);
  dropped = queue_.drop(owner);
  return hindrance;
}

}  // namespace twinloft::lmtpd
