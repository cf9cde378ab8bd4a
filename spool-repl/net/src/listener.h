// Listens at one address, and tries again until that succeeds.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <string>
#include <vector>

#include "name_lookup.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/result.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::net {

class Listener {
 public:
  struct Events {
    std::function<void(Fd caller, const sockaddr_storage& from)> caller;
    std::function<void(const std::string& text)> notice;     // it cannot listen, or listens again
    std::function<void(const std::string& text)> exhausted;  // no caller can be accepted at present
    std::function<Status(const Address&)> check;             // whether it may listen there
  };
  Listener(ports::Loop& loop, NameLookup& lookup, std::string text, Duration again, Events events);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // From now on.
  void listen();
  bool is_listening() const { return static_cast<bool>(socket_); }
  const std::string& text() const { return text_; }
  const std::string& trouble() const { return trouble_; }  // empty: none

 private:
  void listen_on(const Result<std::vector<Address>>& found);
  Status try_listen(const Address& address);
  void on_accept();
  void pause_accepting(int error);

  ports::Loop& loop_;
  NameLookup& lookup_;
  std::string text_;
  Duration listen_again_;
  Events events_;
  Fd socket_;
  std::string trouble_;
  ports::Loop::TimerId listen_timer_ = 0, accept_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::net
