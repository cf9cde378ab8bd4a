#include "twinloft/lmtpd/spool/sync_group.h"

namespace twinloft::lmtpd {

struct SyncGroup::Group {
  int fd = -1;  // of its oldest member
  std::uint64_t order = 0;
  std::uint64_t device = 0;
  std::uint64_t members = 0;
  std::uint64_t awaited = 0;  // its leader waits for so many members
  bool done = false;
  Status result;
  std::condition_variable changed;  // done, or a leader is wanted
};

Status SyncGroup::sync(const SpoolHandle& spool, const SyncGather& gather) {
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
  if (++group->members == group->awaited) group->changed.notify_all();
  ++counters_.waiting;
  if (spool.order < group->order) {
    group->order = spool.order;
    group->fd = spool.root.get();
  }
  while (!group->done) {
    if (running_) {
      group->changed.wait(lock);
    } else {
      lead(lock, *group, gather);
    }
  }
  --counters_.waiting;
  return group->result;
}

// Runs the syncfs of the gathering group. Its members stay blocked in sync(), so the chosen descriptor stays
// open.
void SyncGroup::lead(std::unique_lock<std::mutex>& lock, Group& group, const SyncGather& gather) {
  running_ = true;
  if (group.members < gather.callers) {
    group.awaited = gather.callers;
    group.changed.wait_for(lock, gather.longest, [&] { return group.members >= group.awaited; });
  }
  gathering_.reset();
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
