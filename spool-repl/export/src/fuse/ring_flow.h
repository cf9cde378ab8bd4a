// Where an entry of the ring is. Pure: each request is answered exactly once, and no entry is lost unnoticed.
#pragma once

#include <cerrno>
#include <cstdint>

#include "twinloft/base/check.h"
#include "uapi.h"

namespace twinloft::repl::fuse {

class EntryFlow {
 public:
  enum class Place : std::uint8_t {
    idle,     // never registered
    kernel,   // a command is in flight: the kernel may write to the buffers
    here,     // holds a request, which is not answered yet
    waiting,  // answered, but the kernel was short of memory: the commit is to be repeated
    gone,     // the connection has ended
  };
  enum class Next : std::uint8_t {
    serve,  // a request has come
    again,  // repeat the commit after a pause
    ended,  // the connection has ended
    broken  // the kernel refuses the entry: a request may stay unanswered, so the connection must end
  };
  static constexpr unsigned attempts_max = 100;

  // The command was pushed.
  void give(uapi::RingCommand command) {
    TL_CHECK_MSG(command == uapi::command_register ? place_ == Place::idle
                                                   : place_ == Place::here || place_ == Place::waiting,
                 "fuse: an entry of the ring is given twice");
    command_ = command;
    place_ = Place::kernel;
  }

  // The command has completed.
  Next complete(int result) {
    TL_CHECK_MSG(place_ == Place::kernel, "fuse: an entry of the ring completes twice");
    if (result == 0) {
      place_ = Place::here;
      attempts_ = 0;
      return Next::serve;
    }
    bool shortage = result == -EAGAIN || result == -EINTR || result == -ENOMEM;
    if (shortage && command_ == uapi::command_commit_and_fetch && ++attempts_ < attempts_max) {
      place_ = Place::waiting;
      return Next::again;
    }
    place_ = Place::gone;
    bool over = result == -ENOTCONN || result == -ECONNABORTED || result == -ECANCELED || result == -ENODEV;
    return over ? Next::ended : Next::broken;
  }

  // The connection has ended, so the request needs no answer.
  void drop() {
    TL_CHECK_MSG(place_ != Place::kernel, "fuse: an entry of the kernel is dropped");
    place_ = Place::gone;
  }

  Place place() const { return place_; }

 private:
  Place place_ = Place::idle;
  uapi::RingCommand command_ = uapi::command_register;
  unsigned attempts_ = 0;
};

}  // namespace twinloft::repl::fuse
