// A server process as its supervisor sees it: it obeys orders, watches its helper processes, and gives signs
// of life.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/process/control_channel.h"
#include "twinloft/lmtpd/process/server_messages.h"

namespace twinloft::lmtpd {

// This process's end of the control channel.
class Control {
 public:
  Control(int channel, Generation generation) : channel_(channel), generation_(generation) {}

  int channel() const { return channel_; }
  Generation generation() const { return generation_; }
  // False: not sent. The supervisor is gone, or the channel is full.
  bool say(const FromServer& message, WhenFull when_full = WhenFull::wait) const;
  bool say_ready() const { return say(ServerReady{generation_}); }

 private:
  const int channel_;
  const Generation generation_;
};

// The functions return at once, and are called on the thread of obey_supervisor().
struct Ordered {
  std::function<void()> drain;        // accept no new connections, and end after the last existing one
  std::function<void()> stop, abort;  // StopServer, AbortServer
  std::function<void()> hurry;        // a helper is gone without which nothing can be served
  std::function<bool()> takes_turns;  // false: no sign of life
};

// A helper process of this server process.
struct Helper {
  int lifeline = -1;  // poll(2) reports POLLHUP once the helper has ended
  std::function<Status()> beat;
  std::string_view gone;  // the log line for this
  bool for_all = false;   // nothing can be served without this helper
};

inline constexpr std::string_view user_process_gone = "the process that asks the user database is gone";
inline constexpr std::string_view connector_gone = "the process that makes connections is gone";

// Process: has lifeline() and beat(), as LaneProcess. It outlives the helper.
template <class Process>
Helper helper_of(Process& process, std::string_view gone, bool for_all = false) {
  return {process.lifeline(), [&process] { return process.beat(); }, gone, for_all};
}

// Returns once the supervisor is gone, after stop(), or after shutdown(2) of the channel. aborted: the end of
// helpers is expected. An invalid message of the supervisor is logged and ignored.
void obey_supervisor(const Control& control, const Ordered& server, std::vector<Helper> helpers,
                     const std::atomic<bool>& aborted, const Clock& clock);

}  // namespace twinloft::lmtpd
