// The front ends of a volume from promotion to promotion: attached, stopped, taken away; and the waiting
// replies.
//
// A promotion is complete when its device exists. A demotion stops the device first, which may be refused,
// and nothing is written afterwards. If another replica was promoted, the device is taken away, and the next
// promotion waits for its end.
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
  // The volume, for its front ends.
  class Volume {
   public:
    virtual ~Volume() = default;
    virtual std::unique_ptr<FrontEnds> make_front_ends() = 0;
    virtual bool is_draining() = 0;
    virtual void stand_down() = 0;                     // the volume must not be promoted by itself
    virtual void ask_core_to_demote(Reply reply) = 0;  // nullptr: no client waits
    virtual void device_is_taken_away() = 0;           // another replica is primary
    virtual void fail_volume(const std::string& why, bool tell) = 0;  // the volume ends; tell: also in the
                                                                      // log
    virtual void end() = 0;  // after fail_volume(), once the front ends have ended
    virtual void gives_back(const std::string& why) = 0;  // a promotion whose device cannot be made
  };
  FrontEndLife(ports::Loop& loop, Volume& volume) : loop_(loop), volume_(volume) {}

  void on_role(const core::RoleChange& change);
  // For the start: if the volume becomes primary at once, attaching its front ends is a part of the start,
  // with its errors.
  void report_start(Done done);
  bool is_attaching() const { return std::holds_alternative<Attaching>(change_); }
  void when_attached(Done done);  // while attaching
  void demote(const core::VolumeStatus& status, Reply reply);
  // Without front ends, `done` is called within. Errors: the device is in use, and is unchanged.
  void stop(bool force, Done done);
  // When the volume ends: the front ends end at once, and a start that waits for them has failed.
  void end();
  bool role_changes() const { return !std::holds_alternative<Steady>(change_); }

  FrontEnds* current() const { return current_.get(); }  // nullptr: none
  void flush() {
    if (current_) current_->flush();
  }

 private:
  struct Steady {};
  struct Attaching {  // or waiting for the end of the old device
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
  std::unique_ptr<FrontEnds> leaving_;  // of a replaced primary, while its device is taken away
  std::variant<Steady, Attaching, Demoting> change_;
  Done started_;
};

}  // namespace twinloft::repl::daemon
