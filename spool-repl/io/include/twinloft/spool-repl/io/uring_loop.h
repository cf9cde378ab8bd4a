// The owner thread's event loop: readiness of descriptors, timers, posted calls and disk operations on one
// ring of io_uring(7).
//
// A turn of the loop:
//   1. The turn hook runs, so that the owner can send the output of its core.
//   2. One system call submits all queued operations and waits.
//   3. Completions are delivered: disk operations and ready descriptors in the kernel's order, then due
//      timers (by deadline, then by age), then posted calls.
// Disk operations allocate no memory. The thread that runs the first turn becomes the loop's thread. Other
// threads may only call post().
#pragma once

#include <liburing.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/io/disk_op.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::io {

class UringLoop final : public ports::Loop {
 public:
  struct Options {
    unsigned entries = 1024;  // of the submission queue; the kernel rounds up to a power of two
    bool plain_ring = false;  // without optional flags of the ring, as on kernels before 5.19
  };
  // Errors: Errc::unavailable if the kernel lacks or forbids io_uring, with the setting to change. `clock`
  // must outlive the loop.
  static Result<std::unique_ptr<UringLoop>> create(const Clock& clock, const Options& options);
  static Result<std::unique_ptr<UringLoop>> create(const Clock& clock) { return create(clock, Options{}); }

  // Waits for the disk operations in flight, without calling their `done`. Handlers and timers are discarded.
  ~UringLoop() override;
  UringLoop(const UringLoop&) = delete;
  UringLoop& operator=(const UringLoop&) = delete;

  // The kernel keeps a reference to the file of an unwatched descriptor until the next turn. A socket that is
  // closed right after unwatch() is shut down in that turn.
  void watch(int fd, unsigned interest, FdHandler handler) override;
  void change(int fd, unsigned interest) override;
  void unwatch(int fd) override;
  TimerId after(Duration delay, std::function<void()> handler) override;
  void cancel(TimerId id) override;
  void post(std::function<void()> handler) override;
  Instant now() const override { return clock_.now(); }

  // Runs turns until stop() is called on this thread, and completes the turn that called it. Errors: Errc::io
  // if the ring fails. The loop cannot be used afterwards.
  Status run();
  void stop() { stopping_ = true; }
  // Runs one turn, which waits at most `max_wait`. For tests, and for draining at the end.
  Status turn(Duration max_wait);
  // Sets the hook, which runs before each submission.
  void set_turn_hook(std::function<void()> hook) { turn_hook_ = std::move(hook); }

  // Disk operations, which the next turn submits. iov: at most IOV_MAX (1024) entries, which change during
  // the transfer. Short transfers continue until all bytes are transferred, or an error.
  void read(int fd, std::uint64_t offset, std::span<iovec> iov, DiskOp& op);
  void write(int fd, std::uint64_t offset, std::span<iovec> iov, bool rwf_dsync, DiskOp& op);
  void datasync(int fd, DiskOp& op);  // fdatasync(2)
  // fallocate(2) with FALLOC_FL_PUNCH_HOLE or FALLOC_FL_ZERO_RANGE, both with FALLOC_FL_KEEP_SIZE.
  // -EOPNOTSUPP: the file system or the device lacks the operation, and the caller writes zeros.
  void punch_hole(int fd, std::uint64_t offset, std::uint64_t bytes, DiskOp& op);
  void zero_range(int fd, std::uint64_t offset, std::uint64_t bytes, DiskOp& op);
  unsigned disk_ops_in_flight() const { return disk_ops_in_flight_; }

  // Registers memory (io_uring_register(2), IORING_REGISTER_BUFFERS). A read or write within one area then
  // costs the kernel less; with several pieces since Linux 6.15. After an error, the loop works as without
  // it. The memory is pinned, and must stay mapped while the loop is used. May be called once, on the loop's
  // thread or before the first turn. Errors: Errc::io with ENOMEM (RLIMIT_MEMLOCK) or EFAULT (memory that is
  // not mapped).
  Status register_memory(std::span<const MutableByteSpan> areas);

 private:
  struct Watch;

  explicit UringLoop(const Clock& clock);
  Status set_up(const Options& options);
  io_uring_sqe* sqe();
  Status submit_and_wait(Duration max_wait);
  int enable();
  int enter(Duration wait);
  void drain();
  void dispatch(std::uint64_t user_data, int res);

  void arm(Watch& w);
  void disarm(Watch& w);
  void on_poll(Watch& w, int res);
  void run_timers();
  void run_posted();
  Duration until_next_timer() const;

  void start(DiskOp& op);
  void start_fallocate(int fd, int mode, std::uint64_t offset, std::uint64_t bytes, DiskOp& op);
  void queue(DiskOp& op);
  void prepare_transfer(io_uring_sqe* e, const DiskOp& op) const;
  int registered_area(const DiskOp& op) const;
  void on_disk(DiskOp& op, int res);

  const Clock& clock_;
  io_uring ring_{};
  bool ring_open_ = false;
  bool ring_enabled_ = false;
  bool stopping_ = false;
  std::function<void()> turn_hook_;

  std::unordered_map<int, std::unique_ptr<Watch>> watches_;
  std::unordered_map<Watch*, std::unique_ptr<Watch>> leaving_;  // unwatched; the kernel has not answered yet
  std::vector<std::unique_ptr<Watch>> finished_;                // freed at the end of the turn
  unsigned disk_ops_in_flight_ = 0;

  std::vector<MutableByteSpan> areas_;  // registered memory, by the index in the kernel's table
  bool fixed_vectors_ = false;          // the kernel accepts several pieces of an area

  std::map<std::pair<Instant, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, Instant> deadlines_;
  TimerId last_timer_ = 0;

  Fd wakeup_;  // eventfd
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;   // guarded by posted_mutex_
  std::vector<std::function<void()>> running_;  // swapped with posted_, to reuse the memory
};

}  // namespace twinloft::repl::io
