#include "patience.h"

#include <algorithm>
#include <utility>

namespace twinloft::lmtpd {

void Patience::note_transaction(std::uint64_t transaction, Instant now) {
  if (std::exchange(transaction_, transaction) != transaction) transaction_began_ = now;
}

Patience::Verdict Patience::look(Instant now, bool ours) const {
  if (ours) return Wait{limits_.idle};
  Duration left = limits_.idle - silence(now);
  if (transaction_ != 0) {
    const Duration taken = now - transaction_began_;
    if (taken >= limits_.transaction) return TransactionTooLong{};
    left = std::min(left, limits_.transaction - taken);
  }
  if (left > Duration(0)) return Wait{left};
  return Idle{};
}

}  // namespace twinloft::lmtpd
