// A mutex for each name, such as a Maildir. Threads with different names do not wait for each other. A mutex
// exists only while a thread holds it or waits for it.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace twinloft::lmtpd {

class KeyedMutex {
  struct One {
    std::mutex mutex;
    std::size_t users = 0;  // guarded by all_
  };
  using Map = std::map<std::string, One>;  // its iterators stay valid

 public:
  // Holds the mutex until its destructor.
  class Lock {
   public:
    Lock(Lock&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), at_(other.at_) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock() {
      if (!owner_) return;
      at_->second.mutex.unlock();
      owner_->leave(at_);
    }

   private:
    friend class KeyedMutex;
    Lock(KeyedMutex& owner, Map::iterator at) : owner_(&owner), at_(at) {}
    KeyedMutex* owner_;
    Map::iterator at_;
  };

  [[nodiscard]] Lock lock(const std::string& key) {
    Map::iterator at = enter(key);
    at->second.mutex.lock();
    return Lock(*this, at);
  }
  // nullopt: another thread holds the mutex.
  [[nodiscard]] std::optional<Lock> try_lock(const std::string& key) {
    Map::iterator at = enter(key);
    if (at->second.mutex.try_lock()) return Lock(*this, at);
    leave(at);
    return std::nullopt;
  }
  std::size_t in_use() {
    std::lock_guard lock(all_);
    return map_.size();
  }

 private:
  Map::iterator enter(const std::string& key) {
    std::lock_guard lock(all_);
    Map::iterator at = map_.try_emplace(key).first;
    ++at->second.users;
    return at;
  }
  void leave(Map::iterator at) {
    std::lock_guard lock(all_);
    if (--at->second.users == 0) map_.erase(at);
  }

  std::mutex all_;
  Map map_;
};

}  // namespace twinloft::lmtpd
