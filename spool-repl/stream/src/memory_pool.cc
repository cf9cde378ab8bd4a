#include "twinloft/spool-repl/stream/memory_pool.h"

namespace twinloft::repl::stream {

namespace {
constexpr std::uint64_t share_of_free = 4;
}

Result<std::unique_ptr<MemoryPool::Share>> MemoryPool::join(std::uint64_t reserve) {
  std::lock_guard lock(mutex_);
  std::uint64_t all = reserved_ + reserve;
  if (all > bytes_)
    return fail(Errc::exhausted, "link_memory is {} MiB, and the links need {} MiB at least", bytes() >> 20,
                all >> 20);
  reserved_ = all;
  return std::unique_ptr<Share>(new Share(shared_from_this(), reserve));
}

void MemoryPool::leave(std::uint64_t reserve) {
  std::lock_guard lock(mutex_);
  reserved_ -= reserve;
}

Status MemoryPool::set_bytes(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes < reserved_)
    return fail(Errc::invalid, "{} MiB are too few, since the links need {} MiB at least", bytes >> 20,
                reserved_.load() >> 20);
  bytes_ = bytes;
  return {};
}

MemoryPool::Share::~Share() {
  hold(0);
  pool_->leave(reserve_);
}

void MemoryPool::Share::hold(std::uint64_t bytes) {
  std::uint64_t before = of_shared(held_), after = of_shared(bytes);
  held_ = bytes;
  if (after > before) pool_->used_.fetch_add(after - before, std::memory_order_relaxed);
  if (after < before) pool_->used_.fetch_sub(before - after, std::memory_order_relaxed);
}

bool MemoryPool::Share::take(std::uint64_t more) {
  std::uint64_t after = of_shared(held_ + more), added = after - of_shared(held_);
  std::uint64_t used = pool_->used_.load(std::memory_order_relaxed);
  while (added > 0) {
    std::uint64_t all = pool_->bytes(), reserved = pool_->reserved_.load(std::memory_order_relaxed);
    std::uint64_t shared = all > reserved ? all - reserved : 0;
    if (used + added > shared || after > share_of_free * (shared - used - added)) return false;
    if (pool_->used_.compare_exchange_weak(used, used + added, std::memory_order_relaxed)) break;
  }
  held_ += more;
  return true;
}

}  // namespace twinloft::repl::stream
