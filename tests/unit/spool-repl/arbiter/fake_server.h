// An HTTP server whose answers the test sets byte by byte, and a model of etcd's key to use with it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../../support/loopback.h"

namespace twinloft::repl::arbiter {

struct SeenRequest {
  std::string target, body, token;
  std::string head;
};

struct FakeReply {
  std::string bytes;           // sent unchanged; then the connection is closed ...
  bool keep_alive = false;     // ... or kept
  bool silent_before = false;  // sends no byte until the client disconnects
  bool trickle = false;        // one byte in each packet
  bool endless = false;        // sends `bytes` repeatedly until the client disconnects
};

std::string http_answer(unsigned status, const std::string& body, const std::string& more = "");

class FakeServer {
 public:
  using Handler = std::function<FakeReply(const SeenRequest&)>;
  explicit FakeServer(Handler handler);
  std::string url(const char* scheme = "http") const;
  std::vector<SeenRequest> seen() const;
  void wait_for_requests(std::size_t count) const;

 private:
  void serve(int fd);
  std::optional<SeenRequest> read_request(int fd, std::string& buffered);

  Handler handler_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<SeenRequest> seen_;  // guarded by mutex_
  loopback::Server server_;
};

using loopback::closed_port;

// A model of etcd in memory, with range, txn and authenticate.
struct FakeEtcd {
  std::optional<std::string> value;  // the value of the only key
  std::string key;                   // the key of the last request
  std::string cluster = "1234567890";
  std::string user, password;  // if not empty, clients must log in
  int logins = 0;
  std::string token() const { return "token-" + std::to_string(logins); }

  FakeReply operator()(const SeenRequest& r);
  std::string answer(const SeenRequest& r);  // the body of the answer to a good request
};

}  // namespace twinloft::repl::arbiter
