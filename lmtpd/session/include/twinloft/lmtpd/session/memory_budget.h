// The memory budget of all messages together: arriving messages, their recipients, and the input of agents.
// Disk space of messages before delivery has a budget of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace twinloft::lmtpd {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}
  // False: not enough is left, and nothing is taken. spare: bytes that must stay free for other users of the
  // budget.
  bool take(std::uint64_t bytes, std::uint64_t spare = 0) {
    std::uint64_t before = used_.fetch_add(bytes, std::memory_order_relaxed);
    if (before + bytes + spare <= bytes_max_) return true;
    give_back(bytes);
    return false;
  }
  void give_back(std::uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::uint64_t bytes_max() const { return bytes_max_; }
  std::uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const std::uint64_t bytes_max_;
  std::atomic<std::uint64_t> used_{0};
};

// A part of a budget. The destructor gives the part back. The budget must outlive the charge.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  ~MemoryCharge() { release(); }
  MemoryCharge(MemoryCharge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    if (this == &other) return *this;
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  // Replaces the part. False: not enough is left, and the part is empty. Without a budget there is no limit.
  bool take(MemoryBudget* budget, std::uint64_t bytes) {
    release();
    if (!budget) return true;
    if (!budget->take(bytes)) return false;
    budget_ = budget;
    bytes_ = bytes;
    return true;
  }
  // Adds to the part. False: not enough is left, and the part is unchanged.
  bool add(MemoryBudget* budget, std::uint64_t bytes) {
    if (!budget) return true;
    if (!budget->take(bytes)) return false;
    budget_ = budget;
    bytes_ += bytes;
    return true;
  }
  void release() {
    if (MemoryBudget* budget = std::exchange(budget_, nullptr)) budget->give_back(std::exchange(bytes_, 0));
  }

 private:
  MemoryBudget* budget_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace twinloft::lmtpd
