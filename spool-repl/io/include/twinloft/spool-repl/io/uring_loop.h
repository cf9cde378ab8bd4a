// The owner thread's event loop on io_uring: readiness of descriptors, timers, posted calls, and disk
// operations, all on one ring (DESIGN 6.1).
//
// One turn of the loop is:
//   1. the turn hook runs, so that the owner can flush what its core has to say;
//   2. everything queued is submitted and the thread waits, in one system call;
//   3. completions are handed out: disk operations and ready descriptors in the order the kernel reports
//   them, then
//      due timers (by deadline, then by age), then posted calls.
// Disk operations allocate nothing. The thread that runs the first turn is the loop's thread from then on;
// only post() may be called from others.
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
    unsigned entries = 1024;  // of the submission queue; rounded up to a power of two by the kernel
    bool plain_ring = false;  // set the ring up without optional flags, as on kernels before 5.19
  };
  // Errors: Errc::unavailable where the kernel has no io_uring or forbids it, with what to change. `clock`
  // must outlive the loop.
  static Result<std::unique_ptr<UringLoop>> create(const Clock& clock, const Options& options);
  static Result<std::unique_ptr<UringLoop>> create(const Clock& clock) { return create(clock, Options{}); }

  // Waits for disk operations still in flight without calling their `done`; handlers and timers are dropped.
  ~UringLoop() override;
  UringLoop(const UringLoop&) = delete;
  UringLoop& operator=(const UringLoop&) = delete;

  // The kernel lets go of an unwatched descriptor's file on the next turn: a socket closed right after
  // unwatch() is really closed then.
  void watch(int fd, unsigned interest, FdHandler handler) override;
  void change(int fd, unsigned interest) override;
  void unwatch(int fd) override;
  TimerId after(Duration delay, std::function<void()> handler) override;
  void cancel(TimerId id) override;
  void post(std::function<void()> handler) override;
  Instant now() const override { return clock_.now(); }

  // Turns until stop() is called on this thread; the turn that calls it is finished. Errors: Errc::io where
  // the ring itself fails, after which the loop is of no more use.
  Status run();
  void stop() { stopping_ = true; }
  // One turn, waiting at most `max_wait`. For tests and for draining at the end.
  Status turn(Duration max_wait);
  // Called before each submission, so once after each turn's completions.
  void set_turn_hook(std::function<void()> hook) { turn_hook_ = std::move(hook); }

  // Disk operations. They are submitted with the turn. At most IOV_MAX (1024) iovecs; the array is used up as
  // the transfer goes on. Short transfers are continued until everything is done or an error ends them.
  void read(int fd, std::uint64_t offset, std::span<iovec> iov, DiskOp& op);
  void write(int fd, std::uint64_t offset, std::span<iovec> iov, bool rwf_dsync, DiskOp& op);
  void datasync(int fd, DiskOp& op);  // fdatasync(2)
  // fallocate(2) with FALLOC_FL_PUNCH_HOLE or FALLOC_FL_ZERO_RANGE, both with FALLOC_FL_KEEP_SIZE.
  // -EOPNOTSUPP where the file system or device has none: the caller then writes zeros.
  void punch_hole(int fd, std::uint64_t offset, std::uint64_t bytes, DiskOp& op);
  void zero_range(int fd, std::uint64_t offset, std::uint64_t bytes, DiskOp& op);
  unsigned disk_ops_in_flight() const { return disk_ops_in_flight_; }

  // Memory that the kernel then need not look up for each read and write whose pieces all lie in one of these
  // areas (io_uring_register(2), IORING_REGISTER_BUFFERS); several pieces at once since Linux 6.15. It only
  // makes them cheaper: after an error all works as before. The memory is pinned, and stays mapped as long as
  // the loop is used. Once in a loop's life, on the loop's thread or before there is one. Errors: Errc::io
  // with ENOMEM beyond RLIMIT_MEMLOCK, EFAULT where memory is not mapped.
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
  std::unordered_map<Watch*, std::unique_ptr<Watch>> leaving_;  // unwatched, but the kernel has yet to answer
  std::vector<std::unique_ptr<Watch>> finished_;                // freed at the end of the turn
  unsigned disk_ops_in_flight_ = 0;

  std::vector<MutableByteSpan> areas_;  // registered, by their place in the kernel's table
  bool fixed_vectors_ = false;          // the kernel takes several pieces of an area at once

  std::map<std::pair<Instant, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, Instant> deadlines_;
  TimerId last_timer_ = 0;

  Fd wakeup_;  // eventfd
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;   // guarded by posted_mutex_
  std::vector<std::function<void()>> running_;  // its storage is swapped with posted_
};

}  // namespace twinloft::repl::io
