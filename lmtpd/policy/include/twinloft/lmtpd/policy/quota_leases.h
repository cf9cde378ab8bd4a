// Room in mailboxes that another program counts, asked for in leases and not for each message. No I/O: the
// caller asks the service. Not thread-safe.
//
// A lease is a number of bytes that the service said would fit. Deliveries use it up without further
// questions, for a few seconds. If the service refuses a lease, it is asked for the message itself, so nobody
// with room is refused. Mail that other programs store meanwhile is not known here: it may exceed the limit
// by what is left of the lease, and by the deliveries in flight (docs/decisions/quota.md).
//
//   begin() ─┬─▶ Ask ─▶ the service ─▶ answered() ─┬─▶ Ask ...
//      ▲     ├─▶ Done                              └─▶ Done
//      └─ Wait: another request asks for this user
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <variant>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/policy/quota.h"
#include "twinloft/lmtpd/policy/user.h"

namespace twinloft::lmtpd {

struct LeaseRules {
  std::uint64_t bytes_max = lease_bytes_default;  // 0: there are no leases
  std::uint64_t share = 64;                       // a lease is at most this part of a known limit
  std::uint64_t bytes_unknown = 1u << 20;         // the lease of a user whose limit is not known
  std::uint32_t messages_max = 128;               // of a lease: the service may have an unknown limit
  Duration lives = std::chrono::seconds(10);      // since the question
  // A refused lease is asked for at a quarter the next time, and after `shrinks_max` refusals not at all.
  // Each `shrunk_for`, one refusal is forgotten.
  std::uint32_t shrinks_max = 4;
  Duration shrunk_for = std::chrono::seconds(60);
  Duration renewal_pause = std::chrono::seconds(1);  // after a renewal that has failed
  std::size_t idle_max = 32'768;                     // remembered users without a request
};

class QuotaLeases {
  struct Account;

 public:
  explicit QuotaLeases(LeaseRules rules = {}) : rules_(rules) {}
  QuotaLeases(const QuotaLeases&) = delete;
  QuotaLeases& operator=(const QuotaLeases&) = delete;

  // look: holds no room. delivery: holds room from a Done with `enough` until end().
  enum class For { look, delivery };

  // One message to one user. After begin(), end() is called once.
  class Request {
   public:
    // bytes: of the message, with CRLF line ends.
    Request(const User& user, std::uint64_t bytes, For purpose)
        : user_(user.name), limit_(user.quota), bytes_(bytes), purpose_(purpose) {}

   private:
    friend class QuotaLeases;
    enum class Stage { begun, lease, renewal, itself, alone };

    std::string user_;
    QuotaLimit limit_;
    std::uint64_t bytes_;
    For purpose_;
    Account* account_ = nullptr;
    Stage stage_ = Stage::begun;
    bool asks_ = false;              // it is the one request that asks for this user
    bool waited_ = false;            // it has got Wait
    bool sum_is_too_large_ = false;  // the answer about it and the deliveries in flight was Room::never
    std::uint64_t held_ = 0;         // bytes
    std::uint64_t others_ = 0;       // bytes in flight that the question includes
    std::uint64_t lease_ = 0;        // bytes of the lease that is asked for
    Instant asked_at_{};
    std::uint64_t drawn_bytes_ = 0, drawn_messages_ = 0;  // of the account, at the question
  };

  // `enough`: there is room. Errors: the service's, or Errc::exhausted if deliveries in flight hold the room.
  struct Done {
    Result<Room> room;
  };
  struct Ask {
    std::uint64_t bytes;  // whether this fits
  };
  struct Wait {};  // call begin() again after another request of the user got Done, or ended
  using Step = std::variant<Done, Ask, Wait>;

  Step begin(Request& request, Instant now);
  Step answered(Request& request, const Result<Room>& answer, Instant now);
  // Also for a request that has no Done, because the caller gives up.
  void end(Request& request, Instant now);

  // Whether begin() of such a look would give Done with `enough`.
  bool covers(const User& user, std::uint64_t bytes, Instant now) const;

  std::size_t remembered() const { return accounts_.size(); }

 private:
  struct Account {
    std::size_t requests = 0;  // that have not ended
    bool asked = false;        // one of them asks
    std::uint64_t held = 0;    // bytes of deliveries in flight
    // The lease.
    std::uint64_t size = 0, left = 0;  // bytes
    std::uint32_t messages_left = 0;
    Instant until{};
    std::uint64_t drawn_bytes = 0, drawn_messages = 0;  // from all leases so far
    // After refusals and failures.
    std::uint32_t shrunk = 0;
    Instant grows_at{};
    Instant renew_from{};
    std::list<const std::string*>::iterator idle{};  // valid while `requests` is 0
  };

  using Accounts = std::unordered_map<std::string, Account>;

  Account& enter(Request& request);
  std::uint64_t lease_size(Account& account, const Request& request, Instant now) const;
  bool covers(const Account& account, const QuotaLimit& limit, std::uint64_t bytes, Instant now) const;
  bool is_nearly_used(const Account& account, Instant now) const;
  bool draw(Account& account, Request& request);
  void grant(Account& account, const Request& request);
  void shrink(Account& account, Instant now) const;
  Step ask_lease(Account& account, Request& request, std::uint64_t size, Request::Stage stage, Instant now);
  Step ask_itself(Account& account, Request& request);
  Step lease_answered(Account& account, Request& request, const Result<Room>& answer, Instant now);
  Step itself_answered(Account& account, Request& request, const Result<Room>& answer);
  Step done(Account& account, Request& request, Result<Room> room);

  const LeaseRules rules_;
  Accounts accounts_;                   // by user
  std::list<const std::string*> idle_;  // users without a request; the least recently used is the last
};

}  // namespace twinloft::lmtpd
