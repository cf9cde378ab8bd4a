// The kernel's ublk driver as the export sees it: everything that touches the kernel is behind this. Tests
// put a driver of their own here.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "uapi.h"

namespace twinloft::repl::ublk {

// A completed command of a queue. Both as the kernel says: not checked.
struct Completion {
  std::uint64_t tag = 0;
  int result = 0;
};

// The ring on which one device's requests come in and go out. Owner thread: the driver takes the thread that
// fetches first for the one that serves.
class Queue {
 public:
  virtual ~Queue() = default;        // closes /dev/ublkcN
  virtual int event_fd() const = 0;  // an eventfd, readable once there are completions
  virtual uapi::IoDescriptor descriptor(unsigned tag) const = 0;            // a copy; tag < depth
  virtual void push(std::uint32_t op, const uapi::IoCommand& command) = 0;  // at most one for each tag at a
                                                                            // time
  virtual int submit() = 0;  // what was pushed. 0 or -errno: then it stays to be submitted
  virtual std::size_t reap(std::span<Completion> out) = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;

  // Side thread only; all of these may block.

  // /dev/ublk-control. Errors: unavailable (no driver, or no io_uring), denied.
  virtual Status open() = 0;
  // One command and its outcome: 0 or more, or -errno. Given up (-ECANCELED, as a rule) once `give_up` is
  // set.
  virtual int control(std::uint32_t op, const uapi::ControlCommand& command,
                      const std::atomic<bool>& give_up) = 0;
  virtual std::vector<unsigned> devices() = 0;  // all there are
  // /dev/ublkcN. Errors: not_found (not yet), unavailable (open elsewhere).
  virtual Result<Fd> open_char(unsigned id) = 0;
  virtual bool has_node(const std::string& block_device) = 0;
  // Keeps others from mounting it. Errors: unavailable (mounted, or part of something), not_found.
  virtual Result<Fd> claim(const std::string& block_device) = 0;
  // Others that have it open: "fio (812), dd (813)". Empty: none that can be seen.
  virtual std::string users(const std::string& block_device) = 0;
  virtual void pause() = 0;  // between two attempts: `pause_time`
  static constexpr int pauses_a_second = 50;

  // Owner thread.
  virtual Result<std::unique_ptr<Queue>> open_queue(Fd char_device, unsigned depth) = 0;
};

}  // namespace twinloft::repl::ublk
