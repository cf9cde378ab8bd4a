// The common interface of the exports that create a block device on this machine: how the device is removed.
#pragma once

#include <functional>
#include <string>

#include "twinloft/base/result.h"

namespace twinloft::repl::exports {

// Called on the loop's thread when the device is lost, and when it is attached again. serious: it is lost.
using DeviceEvent = std::function<void(std::string text, bool serious)>;

class BlockDevice {
 public:
  // Allowed after stop() has succeeded or abort() was called, once in_flight() is 0. Waits until the device
  // is gone.
  virtual ~BlockDevice() = default;

  // Removes link and device, and calls `stopped` from the loop. If the device is still being attached, it
  // waits. Errors: Errc::unavailable while the device is in use. The device then stays, and stop() may be
  // called again.
  virtual void stop(std::function<void(Status)> stopped) = 0;
  // Separates the device from its data: all waiting requests fail. For a process that must end; completed
  // writes without a flush are lost, as in a power cut. Returns at once, and `gone` is called from the loop
  // once the kernel has removed the device. May be called again.
  virtual void abort(std::function<void()> gone) = 0;
  // Sends the replies. Called after each batch of the target's completions, if the owner has chosen to do so.
  virtual void flush() {}

  // "/dev/loop3". Empty: the device is not attached yet, or lost.
  virtual const std::string& device() const = 0;
  virtual std::string trouble() const { return {}; }  // the reason if the device is lost
  virtual unsigned in_flight() const = 0;             // requests that the target has not completed
};

}  // namespace twinloft::repl::exports
