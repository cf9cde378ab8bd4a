// The front ends of one volume while it is primary: made and started at each promotion, as its configuration says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "twinloft/spool-repl/daemon/config.h"
#include "twinloft/spool-repl/format/types.h"
#include "twinloft/spool-repl/ports/block_target.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::daemon {

class FrontEnds {
 public:
  FrontEnds(ports::Loop& loop, ports::BlockTarget& target, const VolumeSettings& settings,
            const Epoch& promotion);
  ~FrontEnds();

  // `done` is called on the loop's thread once the device is there, or with the error.
  void start(std::function<void(Status)> done);
  // An error: the device is in use and was left as it is (with `force` it goes all the same).
  void stop(bool force, std::function<void(Status)> done);

  void flush();  // after each batch of completions: sends the replies that are ready

  std::string device() const;
  std::string nbd_uri() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace twinloft::repl::daemon
