// The front ends of a volume while it is primary. They are made and started at each promotion, by its
// configuration.
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
#include "twinloft/spool-repl/stream/tls_context.h"

namespace twinloft::repl::daemon {

// Removes the link to the device of a killed process, which may lead to another device now. Call it before
// anything is served.
void remove_stale_link(const VolumeSettings& settings);

class FrontEnds {
 public:
  virtual ~FrontEnds() = default;
  FrontEnds(const FrontEnds&) = delete;
  FrontEnds& operator=(const FrontEnds&) = delete;

  // Calls `done` on the loop's thread once the device exists, or with the error.
  virtual void start(std::function<void(Status)> done) = 0;
  // Errors: the device is in use, and is unchanged (force: it ends nevertheless).
  virtual void stop(bool force, std::function<void(Status)> done) = 0;

  virtual void flush() = 0;  // after each batch of completions: sends the replies that are ready

  virtual std::string device() const = 0;          // the path to mount; empty: none is attached
  virtual std::string device_trouble() const = 0;  // why a configured device is missing
  virtual bool device_lost() const = 0;            // another program has taken it away
  virtual std::string nbd_uri() const = 0;
  virtual void set_nbd_tls(std::shared_ptr<const stream::TlsContext> tls) = 0;  // for later clients

 protected:
  FrontEnds() = default;
};

// tell: reports that the block device was lost to another program, or exists again.
std::unique_ptr<FrontEnds> make_front_ends(ports::Loop& loop, ports::BlockTarget& target,
                                           const VolumeSettings& settings, const Epoch& promotion,
                                           std::shared_ptr<const stream::TlsContext> nbd_tls,
                                           exports::DeviceEvent tell);

}  // namespace twinloft::repl::daemon
