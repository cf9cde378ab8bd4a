// How long a connection waits for its client: pure computation, without a clock and without a timer.
//
// A client that neither sends nor reads is idle. A client that keeps sending may still take too long for its
// message: the limit counts from MAIL. Neither limit applies while the client waits for this server.
#pragma once

#include <cstdint>
#include <variant>

#include "twinloft/base/clock.h"

namespace twinloft::lmtpd {

class Patience {
 public:
  struct Limits {
    Duration idle;
    Duration transaction;
  };
  Patience(Limits limits, Instant now) : limits_(limits), last_progress_(now) {}

  // Bytes were sent or received, or the wait for the client begins now.
  void note_progress(Instant now) { last_progress_ = now; }
  // `transaction` is Session::transaction(); 0: none is open. Call this whenever it may have changed.
  void note_transaction(std::uint64_t transaction, Instant now);
  Duration silence(Instant now) const { return now - last_progress_; }

  struct Wait {  // call look() again after this time
    Duration duration;
  };
  struct TransactionTooLong {};
  struct Idle {};
  using Verdict = std::variant<Wait, TransactionTooLong, Idle>;
  // `ours`: the client waits for this server.
  Verdict look(Instant now, bool ours) const;

 private:
  const Limits limits_;
  Instant last_progress_;
  std::uint64_t transaction_ = 0;
  Instant transaction_began_{};
};

}  // namespace twinloft::lmtpd
