// The front ends of one volume while it is primary: made and started at each promotion, as its configuration
// says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/export/block_device.h"
#include "twinloft/spool-repl/format/types.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::daemon {

// A link to the device that a killed process has left: by now it may lead to somebody else's. Before anything
// is served.
void remove_stale_link(const VolumeSettings& settings);

class FrontEnds {
 public:
  virtual ~FrontEnds() = default;
  FrontEnds(const FrontEnds&) = delete;
  FrontEnds& operator=(const FrontEnds&) = delete;

  // `done` is called on the loop's thread once the device is there, or with the error.
  virtual void start(std::function<void(Status)> done) = 0;
  // An error: the device is in use and was left as it is (with `force` it goes all the same).
  virtual void stop(bool force, std::function<void(Status)> done) = 0;

  virtual void flush() = 0;  // after each batch of completions: sends the replies that are ready

  virtual std::string device() const = 0;          // the path to mount; empty while nothing is attached there
  virtual std::string device_trouble() const = 0;  // why it is not, where one is configured
  virtual bool device_lost() const = 0;            // another program has taken it away
  virtual std::string nbd_uri() const = 0;

 protected:
  FrontEnds() = default;
};

// `tell`: the block device was lost to another program, or is there again.
std::unique_ptr<FrontEnds> make_front_ends(ports::Loop& loop, ports::BlockTarget& target,
                                           const VolumeSettings& settings, const Epoch& promotion,
                                           exports::DeviceEvent tell);

}  // namespace twinloft::repl::daemon
