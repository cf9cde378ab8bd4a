// How long a connection waits for its client: pure times, without a clock and without a timer.
//
// A client that says nothing and takes nothing is idle. One that keeps sending may still take too long for
// its message: that time runs from MAIL on. Neither runs while this server, and not the client, is waited
// for.
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

  // Bytes have gone to or come from the client, or it waits from now on.
  void note_progress(Instant now) { last_progress_ = now; }
  // Session::transaction(): 0 means that none is open. To be called whenever that may have changed.
  void note_transaction(std::uint64_t transaction, Instant now);
  Duration silence(Instant now) const { return now - last_progress_; }

  struct Wait {  // look again then
    Duration duration;
  };
  struct TransactionTooLong {};
  struct Idle {};
  using Verdict = std::variant<Wait, TransactionTooLong, Idle>;
  // `ours`: this server is waited for.
  Verdict look(Instant now, bool ours) const;

 private:
  const Limits limits_;
  Instant last_progress_;
  std::uint64_t transaction_ = 0;
  Instant transaction_began_{};
};

}  // namespace twinloft::lmtpd
