#include "asked_quota.h"

namespace twinloft::lmtpd {

AskedQuota::Hold::~Hold() {
  if (!request_) return;
  {
    std::lock_guard lock(quota_->mutex_);
    quota_->leases_.end(*request_, quota_->clock_.now());
  }
  quota_->answered_.notify_all();
}

Result<Room> AskedQuota::find(const User& user, std::uint64_t bytes, QuotaLeases::For purpose, Hold& hold) {
  hold.quota_ = this;
  QuotaLeases::Request& request = hold.request_.emplace(user, bytes, purpose);
  std::unique_lock lock(mutex_);
  QuotaLeases::Step step = leases_.begin(request, clock_.now());
  for (;;) {
    if (auto* done = std::get_if<QuotaLeases::Done>(&step)) return std::move(done->room);
    if (std::holds_alternative<QuotaLeases::Wait>(step)) {
      answered_.wait(lock);
      step = leases_.begin(request, clock_.now());
      continue;
    }
    lock.unlock();
    Result<Room> answer = service_->room(user, std::get<QuotaLeases::Ask>(step).bytes);
    lock.lock();
    step = leases_.answered(request, answer, clock_.now());
    answered_.notify_all();
  }
}

Result<Room> AskedQuota::room(const User& user, std::uint64_t bytes) {
  Hold nothing;
  return find(user, bytes, QuotaLeases::For::look, nothing);
}

bool AskedQuota::has_lease(const User& user, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return leases_.covers(user, bytes, clock_.now());
}

Result<Room> AskedQuota::take(const User& user, std::uint64_t bytes, Hold& hold) {
  return find(user, bytes, QuotaLeases::For::delivery, hold);
}

}  // namespace twinloft::lmtpd
