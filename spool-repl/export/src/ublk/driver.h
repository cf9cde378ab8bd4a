// The interface to the kernel's ublk driver. Tests have their own implementation.
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

// A completed command of a queue. The kernel's values, which are not checked.
struct Completion {
  std::uint64_t tag = 0;
  int result = 0;
};

// The ring of a device's requests. For the owner thread: to the driver, the thread of the first fetch is the
// server.
class Queue {
 public:
  virtual ~Queue() = default;        // closes /dev/ublkcN
  virtual int event_fd() const = 0;  // an eventfd, readable once there are completions
  virtual uapi::IoDescriptor descriptor(unsigned tag) const = 0;            // a copy; tag < depth
  virtual void push(std::uint32_t op, const uapi::IoCommand& command) = 0;  // at most one for each tag at
                                                                            // a time
  virtual int submit() = 0;  // submits the pushed commands. 0, or -errno: submit them again
  virtual std::size_t reap(std::span<Completion> out) = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;

  // For the side thread alone. All functions may block.

  // /dev/ublk-control. Errors: unavailable (no driver, or no io_uring), denied.
  virtual Status open() = 0;
  // Runs a command. Returns 0 or more, or -errno. Once `give_up` is set, the command is cancelled (usually
  // -ECANCELED).
  virtual int control(std::uint32_t op, const uapi::ControlCommand& command,
                      const std::atomic<bool>& give_up) = 0;
  virtual std::vector<unsigned> devices() = 0;  // all devices
  // /dev/ublkcN. Errors: not_found (not yet), unavailable (open elsewhere).
  virtual Result<Fd> open_char(unsigned id) = 0;
  virtual bool has_node(const std::string& block_device) = 0;
  // Opens the device exclusively, so that it cannot be mounted. Errors: Errc::unavailable (mounted, or part
  // of another device), Errc::not_found.
  virtual Result<Fd> claim(const std::string& block_device) = 0;
  // The other programs that have the device open: "fio (812), dd (813)". Empty: no visible program.
  virtual std::string users(const std::string& block_device) = 0;
  virtual void pause() = 0;  // between two attempts: `pause_time`
  static constexpr int pauses_a_second = 50;

  // For the owner thread.
  virtual Result<std::unique_ptr<Queue>> open_queue(Fd char_device, unsigned depth) = 0;
};

}  // namespace twinloft::repl::ublk
