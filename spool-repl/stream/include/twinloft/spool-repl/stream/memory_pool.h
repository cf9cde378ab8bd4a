// The memory that the links of a process share. Each link has a reserve of its own, and takes more from what
// all links share.
//
// A link may have at most four times as much of the shared part as it leaves free for others. So one busy
// link uses most of it, several use about the same, and a link that wakes up finds room. The idea is the
// dynamic threshold of shared-memory switches (Choudhury and Hahne, 1998).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::stream {

class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  // A link's part. Its functions are for one thread; the links of a pool have any threads. At its end it
  // holds nothing.
  class Share {
   public:
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    void hold(std::uint64_t bytes);  // so many bytes from now on, whether or not there is room
    bool take(std::uint64_t more);   // false, and nothing is changed: there is no room for them
    std::uint64_t held() const { return held_; }

   private:
    friend class MemoryPool;
    Share(std::shared_ptr<MemoryPool> pool, std::uint64_t reserve)
        : pool_(std::move(pool)), reserve_(reserve) {}
    std::uint64_t of_shared(std::uint64_t held) const { return held > reserve_ ? held - reserve_ : 0; }

    std::shared_ptr<MemoryPool> pool_;
    std::uint64_t reserve_, held_ = 0;
  };

  explicit MemoryPool(std::uint64_t bytes) : bytes_(bytes) {}

  // Errors: Errc::exhausted (the reserves of all links would not fit).
  Result<std::unique_ptr<Share>> join(std::uint64_t reserve);
  // With less than the links hold, they take no more until it is enough again. Errors: Errc::invalid (less
  // than the reserves).
  Status set_bytes(std::uint64_t bytes);
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // What the links hold beyond their reserves.
  std::uint64_t shared_in_use() const { return used_.load(std::memory_order_relaxed); }

 private:
  void leave(std::uint64_t reserve);

  std::mutex mutex_;  // of join(), leave() and set_bytes()
  std::atomic<std::uint64_t> bytes_, reserved_{0};
  std::atomic<std::uint64_t> used_{0};  // of the shared part
};

}  // namespace twinloft::repl::stream
