// Accepts connections from a listener, up to the limit of open connections. If descriptors or memory run out,
// it pauses, and new connections wait in the backlog. It logs the begin, then once a minute, and the end.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "accept_pauses.h"
#include "hub.h"
#include "twinloft/base/fd.h"
#include "twinloft/lmtpd/net/listener.h"

namespace twinloft::lmtpd {

class Acceptor {
 public:
  // `hand_over` gets each new socket, non-blocking.
  using HandOver = std::function<void(NewConnection)>;
  Acceptor(Loop& loop, Listener listener, HandOver hand_over);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Errors: the event loop refuses the descriptor.
  Status start();
  void stop();

 private:
  void wait();
  void accept_ready();
  void accept_all();
  void refuse(const Fd& socket) const;
  void take(Fd socket, const sockaddr_storage& peer);
  void pause(int error);
  void retry_in(Duration time);
  void resumed();

  Loop& loop_;
  Listener listener_;
  HandOver hand_over_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer retry_;
  bool stopped_ = false;
  AcceptPauses pauses_;
};

}  // namespace twinloft::lmtpd
