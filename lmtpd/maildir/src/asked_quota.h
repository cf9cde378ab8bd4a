// Room in mailboxes that a QuotaService counts: the thread-safe edge of QuotaLeases. At most one thread asks
// the service for a user's lease or delivery at a time. Others wait for its answer.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "twinloft/base/clock.h"
#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/policy/quota_leases.h"

namespace twinloft::lmtpd {

class AskedQuota {
 public:
  // `service` null: there is no quota. The references outlive this object. lease: as in QuotaConfig.
  AskedQuota(QuotaService* service, std::uint64_t lease, const Clock& clock)
      : service_(service), clock_(clock), leases_({.bytes_max = lease}) {}

  bool on() const { return service_ != nullptr; }
  // Whether there is room. Holds none.
  Result<Room> room(const User& user, std::uint64_t bytes);
  // Whether a lease gives room() without a question. Does not block.
  bool has_lease(const User& user, std::uint64_t bytes);

  // Holds room for a message until the message is stored or refused.
  class Hold {
   public:
    Hold() = default;
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    friend class AskedQuota;
    AskedQuota* quota_ = nullptr;
    std::optional<QuotaLeases::Request> request_;  // nullopt: nothing was asked
  };
  // Asks for room, and holds it if the result is `enough`.
  Result<Room> take(const User& user, std::uint64_t bytes, Hold& hold);

 private:
  Result<Room> find(const User& user, std::uint64_t bytes, QuotaLeases::For purpose, Hold& hold);

  QuotaService* const service_;
  const Clock& clock_;
  std::mutex mutex_;  // guards leases_
  QuotaLeases leases_;
  std::condition_variable answered_;  // a request got its answer, or ended
};

}  // namespace twinloft::lmtpd
