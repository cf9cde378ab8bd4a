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
  // `tell`: the block device was lost to another program, or is there again.
  FrontEnds(ports::Loop& loop, ports::BlockTarget& target, const VolumeSettings& settings,
            const Epoch& promotion, exports::DeviceEvent tell);
  ~FrontEnds();

  // `done` is called on the loop's thread once the device is there, or with the error.
  void start(std::function<void(Status)> done);
  // An error: the device is in use and was left as it is (with `force` it goes all the same).
  void stop(bool force, std::function<void(Status)> done);

  void flush();  // after each batch of completions: sends the replies that are ready

  std::string device() const;          // the path to mount; empty while nothing is attached there
  std::string device_trouble() const;  // why it is not, where one is configured
  bool device_lost() const;            // another program has taken it away
  std::string nbd_uri() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace twinloft::repl::daemon
