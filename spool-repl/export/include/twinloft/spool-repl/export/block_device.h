// What all exports have in common that make a block device of this machine: how it goes again.
#pragma once

#include <functional>
#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::exports {

// Told on the loop's thread: the device was lost, or is there again.
using DeviceEvent = std::function<void(std::string text, bool serious)>;

class BlockDevice {
 public:
  // After stop() succeeded, or abort(), and once in_flight() is 0. Where the device is not gone yet it waits
  // for that.
  virtual ~BlockDevice() = default;

  // Withdraws link and device; calls back from the loop. While the device is in use it fails with
  // Errc::unavailable, the device stays, and stop() may be tried again. Before it is ready it waits for that.
  virtual void stop(std::function<void(Status)> stopped) = 0;
  // Cuts the device off from its data at once: everything waiting on it fails. For a process that has to give
  // up; completed writes that were not flushed are what a power cut would cost. Returns at once; `gone` comes
  // from the loop when the kernel has let the device go. May be asked again.
  virtual void abort(std::function<void()> gone) = 0;
  // After each batch of the target's completions, where the owner said that it calls this.
  virtual void flush() {}

  virtual const std::string& device() const = 0;  // "/dev/loop3"; empty before it is ready, and while it is
                                                  // lost
  virtual std::string trouble() const { return {}; }  // why it is lost: another program took it away
  virtual unsigned in_flight() const = 0;             // requests that the target holds
};

}  // namespace twinloft::repl::exports
