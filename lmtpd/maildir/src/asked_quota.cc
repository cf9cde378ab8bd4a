#include "asked_quota.h"

namespace twinloft::lmtpd {

void AskedQuota::enter(const std::string& user, Hold& hold) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Mailbox>& mailbox = mailboxes_[user];
  if (!mailbox) mailbox = std::make_unique<Mailbox>();
  hold.user_ = user;
  hold.mailbox_ = mailbox.get();
  hold.quota_ = this;
  ++mailbox->users;
}

AskedQuota::Hold::~Hold() {
  if (!quota_) return;
  std::lock_guard lock(quota_->mutex_);
  mailbox_->held -= bytes_;
  if (--mailbox_->users == 0) quota_->mailboxes_.erase(user_);
}

// Deliveries in flight may still fail, so the room that they hold causes only a temporary refusal.
Result<Room> AskedQuota::take(const User& user, std::uint64_t bytes, Hold& hold) {
  enter(user.name, hold);
  std::lock_guard asking(hold.mailbox_->asking);
  std::uint64_t others;
  {
    std::lock_guard lock(mutex_);
    others = hold.mailbox_->held;
  }
  TL_TRY_ASSIGN(Room room, service_->room(user, bytes + others));
  if (room == Room::enough) {
    std::lock_guard lock(mutex_);
    hold.mailbox_->held += bytes;
    hold.bytes_ = bytes;
    return room;
  }
  if (others == 0) return room;
  TL_TRY_ASSIGN(Room alone, service_->room(user, bytes));
  if (alone != Room::enough) return alone;
  return fail(Errc::exhausted, "no room is left: deliveries in flight hold {} bytes", others);
}

}  // namespace twinloft::lmtpd
