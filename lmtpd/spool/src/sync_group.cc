#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

struct SyncGroup::Group {
  int fd = -1;  // of its oldest member
  std::uint64_t order = 0;
  std::uint64_t device = 0;
  std::uint64_t members = 0;
  bool done = false;
  Status result;
  std::condition_variable changed;  // done, or a leader is wanted
};

Status SyncGroup::sync(const SpoolHandle& spool) {
  std::unique_lock lock(mutex_);
  if (gathering_ && gathering_->device != spool.device) {
    // The spool was unmounted and mounted again, with deliveries of both mounts in flight. A group is of a
    // single file system.
    ++counters_.rounds;
    ++counters_.members;
    lock.unlock();
    return ops_.sync_file_system(spool.root.get());
  }
  if (!gathering_) {
    gathering_ = std::make_shared<Group>();
    gathering_->device = spool.device;
    gathering_->order = spool.order;
    gathering_->fd = spool.root.get();
  }
  std::shared_ptr<Group> group = gathering_;
  ++group->members;
  ++counters_.waiting;
  if (spool.order < group->order) {
    group->order = spool.order;
    group->fd = spool.root.get();
  }
  while (!group->done) {
    if (running_) {
      group->changed.wait(lock);
    } else {
      lead(lock, *group);
    }
  }
  --counters_.waiting;
  return group->result;
}

// Runs the syncfs of the gathering group. Its members stay blocked in sync(), so the chosen descriptor stays
// open.
void SyncGroup::lead(std::unique_lock<std::mutex>& lock, Group& group) {
  gathering_.reset();
  running_ = true;
  lock.unlock();
  Status result = ops_.sync_file_system(group.fd);
  lock.lock();
  running_ = false;
  ++counters_.rounds;
  counters_.members += group.members;
  group.result = std::move(result);
  group.done = true;
  group.changed.notify_all();
  if (gathering_) gathering_->changed.notify_one();
}

SyncGroup::Counters SyncGroup::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace twinloft::lmtpd
