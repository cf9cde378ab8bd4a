// Calls for the further paths of one link, repeated until each has joined it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/result.h"
#include "twinloft/spool-repl/net/address.h"
#include "twinloft/spool-repl/ports/loop.h"

namespace twinloft::repl::net {

class Connection;

class PathCalls {
 public:
  struct Around {
    ports::Loop& loop;
    // Calls `then` at once for a numeric address, else in a later turn.
    std::function<void(const std::string& text,
                       std::function<void(const Result<std::vector<Address>>&)> then)>
        find;
    std::function<Result<std::shared_ptr<Connection>>(const Address& address, unsigned number)> call;
    std::function<void(unsigned number, const std::string& why)> failed;
    Duration again, again_max;  // between two calls
  };

  explicit PathCalls(Around around) : around_(std::move(around)) {}
  ~PathCalls();  // none of its connections is on the call stack
  PathCalls(const PathCalls&) = delete;
  PathCalls& operator=(const PathCalls&) = delete;

  // Calls from now on until done(). Without an effect if it does so already. soon: at once.
  void need(unsigned number, const std::string& address, bool soon);
  void done(unsigned number);
  // Of a connection of call(): it has ended before it joined the link.
  void on_closed(const Connection& connection, const std::string& why);
  bool owns(const Connection& connection) const;
  // The connection that has joined. It stays in memory for its caller.
  std::shared_ptr<Connection> take(const Connection& connection);
  // Why the path is not there: of the last call. Empty: it has not failed.
  std::string trouble(unsigned number) const;

 private:
  struct Call {
    std::string address;
    std::shared_ptr<Connection> connection = {};
    ports::Loop::TimerId timer = 0;
    unsigned attempts = 0, failed = 0;  // failed: one after the other
    std::string trouble = {};
  };
  void dial(unsigned number);
  void connect(unsigned number, const Result<std::vector<Address>>& found);
  void again(unsigned number, const std::string& why);

  Around around_;
  std::map<unsigned, Call> calls_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::net
