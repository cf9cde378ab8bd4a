// Carries out the steps of Stopping, and reports to the log and the service manager why a stop waits.
#pragma once

#include <functional>
#include <string>

#include "stopping.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::daemon {

class Stopper {
 public:
  // The volume, for a stop.
  class Volume {
   public:
    virtual ~Volume() = default;
    virtual core::VolumeStatus volume_status() = 0;
    virtual bool is_settled() = 0;
    virtual Duration oldest_request() = 0;
    virtual bool role_changes() = 0;
    virtual void stop_front_ends(bool force, std::function<void(Status)> done) = 0;
    virtual void fail_requests() = 0;  // waiting and later requests
    virtual void flush(std::function<void()> done) = 0;
    virtual void checkpoint() = 0;
    virtual void say_waits(const std::string& why) = 0;  // once for each reason
    // The stop is complete. failed: the volume has failed by itself.
    virtual void ended(bool failed) = 0;
  };
  Stopper(ports::Loop& loop, Volume& volume) : loop_(loop), volume_(volume) {}

  void ask(bool force);
  void turn();  // at each turn of the loop
  std::string waits_for() const;
  const Stopping& state() const { return stopping_; }

 private:
  static constexpr Duration watch_every = std::chrono::seconds(1);
  static constexpr Duration drain_turn = std::chrono::milliseconds(20);
  void perform(Stopping::Next next);
  void say_waits();
  void watch();
  void drain();
  void keep_turning();

  ports::Loop& loop_;
  Volume& volume_;
  Stopping stopping_;
  std::string said_;
};

}  // namespace twinloft::repl::daemon
