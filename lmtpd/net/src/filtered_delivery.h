// The deliveries of a message that has passed the filters, in two stages: first the recipients that filters
// have added, then the others. Pure: the caller delivers.
//
//   begin() ─▶ a stage ─▶ take(its replies) ─▶ a stage ─▶ take(its replies) ─▶ nullopt: replies()
//
// If an added recipient fails, no delivery to the others begins, and all get 451: the client sends the
// message again, and it may then come twice to an added recipient. A removed recipient gets 250.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "twinloft/lmtpd/session/filtering.h"

namespace twinloft::lmtpd {

class FilteredDelivery {
 public:
  struct Stage {
    std::shared_ptr<const Envelope> envelope;  // of this stage's recipients
    std::shared_ptr<StoredBody> body;
  };
  // added: those of `passed`, with their users.
  FilteredDelivery(FilteredMessage::Passed&& passed, std::vector<Recipient>&& added);

  std::optional<Stage> begin();
  // The replies of the stage that ends.
  std::optional<Stage> take(const std::vector<Reply>& replies);
  // For each recipient of the original message.
  std::vector<Reply> replies() && { return std::move(replies_); }

 private:
  std::optional<Stage> begin_rest();

  std::shared_ptr<const Envelope> envelope_;
  std::shared_ptr<StoredBody> body_;
  std::shared_ptr<const Envelope> added_;  // null: none, or delivered
  std::vector<std::size_t> rest_;          // the recipients that are not removed
  std::vector<Reply> replies_;
};

}  // namespace twinloft::lmtpd
