// An LMTP server in the test's process. It misbehaves on request, and stores into Maildirs below a directory:
// domain/user/Maildir/new.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "../support/loopback.h"

namespace twinloft::mailbench {

struct FakeMessage {
  std::uint64_t ordinal = 0;            // the number of the message, from 0
  std::vector<std::string> recipients;  // the accepted ones
  std::string text;                     // with CRLF, after dot-unstuffing
};

struct Plan {
  std::string replies;      // all replies after the final dot
  std::vector<bool> store;  // one for each recipient
  bool close = false;       // after the replies
};

Plan accept_all(const FakeMessage& message);

class FakeServer {
 public:
  struct Behaviour {
    bool pipelining = true;
    bool bytewise = false;  // each byte of a reply in its own segment
    std::function<Plan(const FakeMessage&)> on_message = accept_all;
    std::function<std::string(const std::string& address)> on_recipient = [](const std::string&) {
      return "250 ok\r\n";
    };
    std::string greeting = "220 fake\r\n";
    std::string on_chunk = "250 more\r\n";       // the reply to a chunk before the last
    std::uint64_t connections_max = UINT64_MAX;  // further ones are closed, without a greeting, once a
                                                 // message has come
    bool delivered_to = true;                    // written into the stored message
  };
  FakeServer(std::string spool, Behaviour behaviour);
  std::string endpoint() const { return server_.address(); }
  std::uint64_t connections() const { return server_.connections(); }
  std::uint64_t messages() const { return messages_; }

 private:
  void serve(int fd);
  struct Transaction;
  bool end_message(int fd, Transaction& t);  // false: the connection ends
  void store(const std::string& recipient, const std::string& text);

  std::string spool_;
  Behaviour behaviour_;
  std::atomic<std::uint64_t> messages_{0}, files_{0}, greeted_{0};
  loopback::Server server_;
};

}  // namespace twinloft::mailbench
