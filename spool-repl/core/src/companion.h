// When to send a message that can wait for company: a message that wakes its receiver costs a processor's
// time on both machines, and another message to the same peer is usually near.
#pragma once

#include <algorithm>
#include <optional>

#include "twinloft/spool-repl/core/effects.h"

namespace twinloft::repl::core {

class Companion {
 public:
  // How long a message waits for company.
  static constexpr Duration patience = std::chrono::milliseconds(2);

  // Called with each batch of output while there is something to tell. True: send it now. Either it may not
  // wait, or it has company, or its patience is over.
  bool goes(bool urgent, bool has_company, Instant now) {
    if (!due_) due_ = now + patience;
    if (!urgent && !has_company && now < *due_) return false;
    due_.reset();
    return true;
  }
  std::optional<Instant> next_tick() const { return due_; }  // the message goes alone then

 private:
  std::optional<Instant> due_;
};

// Whether this batch of output has a message to the peer already.
inline bool has_message_to(const Output& out, ReplicaId peer) {
  return std::any_of(out.sends.begin(), out.sends.end(), [&](const auto& send) {
    return std::visit([&](const auto& s) { return s.peer == peer; }, send);
  });
}

}  // namespace twinloft::repl::core
