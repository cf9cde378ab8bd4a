// Asks a QuotaService before each message. The service counts stored messages only. This class adds this
// process's deliveries in flight, so that two deliveries do not use the same room.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "twinloft/lmtpd/policy/quota.h"

namespace twinloft::lmtpd {

class AskedQuota {
 public:
  // `service` null: there is no quota.
  explicit AskedQuota(QuotaService* service) : service_(service) {}

  bool on() const { return service_ != nullptr; }
  Result<Room> room(const User& user, std::uint64_t bytes) { return service_->room(user, bytes); }

 private:
  // The state of a user, while deliveries ask or hold room.
  struct Mailbox {
    std::mutex asking;       // serialises asking and holding
    std::uint64_t held = 0;  // bytes; guarded by mutex_
    std::size_t users = 0;   // Hold objects; guarded by mutex_
  };

 public:
  // Holds room for a message until the message is stored or refused.
  class Hold {
   public:
    Hold() = default;
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    friend class AskedQuota;
    AskedQuota* quota_ = nullptr;  // null: take() was not called
    Mailbox* mailbox_ = nullptr;
    std::string user_;
    std::uint64_t bytes_ = 0;
  };
  // Asks for room, and holds it if the result is `enough`.
  Result<Room> take(const User& user, std::uint64_t bytes, Hold& hold);

 private:
  void enter(const std::string& user, Hold& hold);

  QuotaService* const service_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Mailbox>> mailboxes_;  // by user
};

}  // namespace twinloft::lmtpd
