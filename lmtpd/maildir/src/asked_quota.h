// The quota that a QuotaService knows, looked at before a message. It knows of what is stored; of deliveries
// that are under way this process does, so that they do not share the last room.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "twinloft/lmtpd/policy/quota.h"

namespace twinloft::lmtpd {

class AskedQuota {
 public:
  // `service` null: nothing is asked.
  explicit AskedQuota(QuotaService* service) : service_(service) {}

  bool on() const { return service_ != nullptr; }
  Result<Room> room(const User& user, std::uint64_t bytes) { return service_->room(user, bytes); }

 private:
  // One user's, while anybody asks or holds.
  struct Mailbox {
    std::mutex asking;       // one at a time asks and holds
    std::uint64_t held = 0;  // with mutex_
    std::size_t users = 0;   // likewise
  };

 public:
  // Room for a message, until it is stored or given up.
  class Hold {
   public:
    Hold() = default;
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    friend class AskedQuota;
    AskedQuota* quota_ = nullptr;  // null: none was asked for
    Mailbox* mailbox_ = nullptr;
    std::string user_;
    std::uint64_t bytes_ = 0;
  };
  // `enough`, and it is held.
  Result<Room> take(const User& user, std::uint64_t bytes, Hold& hold);

 private:
  void enter(const std::string& user, Hold& hold);

  QuotaService* const service_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Mailbox>> mailboxes_;  // by user
};

}  // namespace twinloft::lmtpd
