// The front ends of a volume from promotion to promotion: attached, stopped, taken away, and who waits for
// that.
//
// A promotion is done when its device is there. A demotion stops the device first: that is what can refuse,
// and after it nothing is written any more. Where another replica was promoted, the device is taken away, and
// the next promotion waits until it is gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "front_ends.h"
#include "twinloft/spool-repl/core/core.h"

namespace twinloft::repl::daemon {

class FrontEndLife {
 public:
  using Done = std::function<void(Status)>;
  using Reply = std::function<void(Result<std::string>)>;
  // The volume, as far as its front ends need it.
  class Volume {
   public:
    virtual ~Volume() = default;
    virtual std::unique_ptr<FrontEnds> make_front_ends() = 0;
    virtual bool is_draining() = 0;
    virtual void stand_down() = 0;                     // it does not want to be primary any more
    virtual void ask_core_to_demote(Reply reply) = 0;  // nullptr: nobody waits for the answer
    virtual void device_is_taken_away() = 0;           // another replica is primary
    virtual void fail_volume(const std::string& why, bool tell) = 0;  // the volume ends; `tell`: the log as
                                                                      // well
    virtual void end() = 0;                               // after fail_volume(), once the front ends are gone
    virtual void gives_back(const std::string& why) = 0;  // a promotion whose device cannot be made
  };
  FrontEndLife(ports::Loop& loop, Volume& volume) : loop_(loop), volume_(volume) {}

  void on_role(const core::RoleChange& change);
  // Of the start: where the volume becomes primary at once, its front ends belong to the start, errors and
  // all.
  void report_start(Done done);
  bool is_attaching() const { return std::holds_alternative<Attaching>(change_); }
  void when_attached(Done done);  // while attaching
  void demote(const core::VolumeStatus& status, Reply reply);
  // Without front ends `done` comes from within. An error: the device is in use, and was left as it is.
  void stop(bool force, Done done);
  // With the volume: the front ends go at once, and a start that waits for them has failed.
  void end();
  bool role_changes() const { return !std::holds_alternative<Steady>(change_); }

  FrontEnds* current() const { return current_.get(); }  // nullptr: there are none
  void flush() {
    if (current_) current_->flush();
  }

 private:
  struct Steady {};
  struct Attaching {  // or waiting for the old device to go
    std::vector<Done> waiting = {};
  };
  struct Demoting {  // the front ends are being stopped for it
    Reply reply;
  };
  void attach();
  void on_attached(Status attached);
  void give_back(const std::string& why);
  void on_stopped_for_demotion(const Status& stopped);
  void on_lost();
  void drop(const FrontEnds* which);

  ports::Loop& loop_;
  Volume& volume_;
  std::unique_ptr<FrontEnds> current_;  // while primary
  std::unique_ptr<FrontEnds> leaving_;  // of a primary that was deposed: its device is being taken away
  std::variant<Steady, Attaching, Demoting> change_;
  Done started_;
};

}  // namespace twinloft::repl::daemon
