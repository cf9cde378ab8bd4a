#include "twinloft/spool-repl/io/uring_loop.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "twinloft/base/check.h"
#include "watch.h"

namespace twinloft::repl::io {

UringLoop::UringLoop(const Clock& clock) : clock_(clock) {}

Result<std::unique_ptr<UringLoop>> UringLoop::create(const Clock& clock, const Options& options) {
  std::unique_ptr<UringLoop> loop(new UringLoop(clock));
  TL_TRY(loop->set_up(options));
  return loop;
}

Status UringLoop::set_up(const Options& options) {
  // The ring starts disabled, so that its only issuer is the thread that first uses it, not the thread that
  // created it. COOP_TASKRUN, SUBMIT_ALL: Linux 5.19; SINGLE_ISSUER, DEFER_TASKRUN: 6.1. Older kernels answer
  // EINVAL.
  const unsigned wanted[] = {
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, 0};
  int rc = -EINVAL;
  for (unsigned flags : wanted) {
    if (options.plain_ring && flags != 0) continue;
    io_uring_params params{};
    params.flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED;
    params.cq_entries = options.entries * 4;
    rc = io_uring_queue_init_params(options.entries, &ring_, &params);
    if (rc != -EINVAL) break;
  }
  if (rc < 0) {
    auto error = fail_errno(
        -rc,
        "io_uring is not available. It needs Linux 5.15 or newer, sysctl kernel.io_uring_disabled = 0, and "
        "in a container a seccomp profile that allows it");
    error.error().code = Errc::unavailable;
    return error;
  }
  ring_open_ = true;
  wakeup_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup_) return fail_errno(errno, "eventfd for waking the event loop");
  watch(wakeup_.get(), readable, [this](unsigned) {
    std::uint64_t count;
    (void)!::read(wakeup_.get(), &count, sizeof count);
  });
  return {};
}

UringLoop::~UringLoop() {
  if (!ring_open_) return;
  drain();
  io_uring_queue_exit(&ring_);
}

// Waits until the kernel has released every file and buffer. Closing the ring would release them later, in
// the background. Does nothing if this thread may not use the ring: then the loop's thread and its I/O have
// ended.
void UringLoop::drain() {
  while (!watches_.empty()) unwatch(watches_.begin()->first);
  while (!leaving_.empty() || disk_ops_in_flight_ > 0) {
    int rc = enter(std::chrono::seconds(1));
    if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EBUSY && rc != -EAGAIN) return;
    io_uring_cqe* cqe;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      std::uint64_t data = cqe->user_data;
      io_uring_cqe_seen(&ring_, cqe);
      if ((data & tag_mask) == tag_poll) leaving_.erase(reinterpret_cast<Watch*>(data & ~tag_mask));
      if ((data & tag_mask) == tag_disk) --disk_ops_in_flight_;
    }
  }
}

io_uring_sqe* UringLoop::sqe() {
  io_uring_sqe* e = io_uring_get_sqe(&ring_);
  while (e == nullptr) {  // the queue is full: submit it early
    int rc = enable();
    if (rc == 0) rc = io_uring_submit(&ring_);
    TL_CHECK_MSG(rc >= 0 || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY, "io_uring refuses submissions");
    e = io_uring_get_sqe(&ring_);
  }
  return e;
}

// Uses the system call directly: liburing 2.3 declares io_uring_enable_rings(), but does not export it.
int UringLoop::enable() {
  if (ring_enabled_) return 0;
  if (::syscall(SYS_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0) != 0)
    return -errno;
  ring_enabled_ = true;
  return 0;
}

int UringLoop::enter(Duration wait) {
  if (int rc = enable(); rc < 0) return rc;
  __kernel_timespec ts{};
  ts.tv_sec = wait.count() / 1'000'000'000;
  ts.tv_nsec = wait.count() % 1'000'000'000;
  io_uring_cqe* cqe = nullptr;
  return io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, wait == Duration::max() ? nullptr : &ts, nullptr);
}

Status UringLoop::submit_and_wait(Duration max_wait) {
  int rc = enter(std::max(Duration::zero(), std::min(max_wait, until_next_timer())));
  // EBUSY: completions must be read first. EAGAIN: no memory at this moment. Operations stay queued.
  if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EBUSY && rc != -EAGAIN)
    return fail_errno(-rc, "the event loop's io_uring failed");
  return {};
}

Status UringLoop::turn(Duration max_wait) {
  if (turn_hook_) turn_hook_();
  TL_TRY(submit_and_wait(max_wait));
  // Completions that arrive during this loop wait for the next turn, so that a busy descriptor does not delay
  // timers.
  for (unsigned left = io_uring_cq_ready(&ring_); left > 0; --left) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(&ring_, &cqe) != 0) break;
    std::uint64_t user_data = cqe->user_data;
    int res = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    dispatch(user_data, res);
  }
  run_timers();
  run_posted();
  finished_.clear();
  return {};
}

Status UringLoop::run() {
  stopping_ = false;
  while (!stopping_) TL_TRY(turn(Duration::max()));
  if (turn_hook_) turn_hook_();
  return {};
}

void UringLoop::dispatch(std::uint64_t user_data, int res) {
  switch (user_data & tag_mask) {
    case tag_disk:
      on_disk(*reinterpret_cast<DiskOp*>(user_data), res);
      break;
    case tag_poll:
      on_poll(*reinterpret_cast<Watch*>(user_data & ~tag_mask), res);
      break;
    default:
      break;
  }
}

UringLoop::TimerId UringLoop::after(Duration delay, std::function<void()> handler) {
  Instant deadline = now() + std::max(delay, Duration::zero());
  TimerId id = ++last_timer_;
  timers_.emplace(std::pair(deadline, id), std::move(handler));
  deadlines_.emplace(id, deadline);
  return id;
}

void UringLoop::cancel(TimerId id) {
  auto it = deadlines_.find(id);
  if (it == deadlines_.end()) return;
  timers_.erase({it->second, id});
  deadlines_.erase(it);
}

Duration UringLoop::until_next_timer() const {
  if (timers_.empty()) return Duration::max();
  return timers_.begin()->first.first - now();
}

void UringLoop::run_timers() {
  if (timers_.empty()) return;
  Instant due = now();
  TimerId newest = last_timer_;  // timers set from handlers wait for the next turn
  while (!timers_.empty()) {
    auto first = timers_.begin();
    if (first->first.first > due || first->first.second > newest) return;
    auto handler = std::move(first->second);
    deadlines_.erase(first->first.second);
    timers_.erase(first);
    handler();
  }
}

void UringLoop::post(std::function<void()> handler) {
  bool first;
  {
    std::lock_guard lock(posted_mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(handler));
  }
  if (!first) return;  // the loop has been woken already
  std::uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof one);
}

void UringLoop::run_posted() {
  {
    std::lock_guard lock(posted_mutex_);
    running_.swap(posted_);
  }
  for (auto& handler : running_) handler();
  running_.clear();
}

}  // namespace twinloft::repl::io
