// Calls for the further paths of one link, repeated until each has joined it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
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
    Duration again, again_max;  // between two calls that did not get through
    Duration flapping_max;      // after a path that could be called and did not last
  };

  explicit PathCalls(Around around) : around_(std::move(around)) {}
  ~PathCalls();  // none of its connections is on the call stack
  PathCalls(const PathCalls&) = delete;
  PathCalls& operator=(const PathCalls&) = delete;

  // Calls at once, and again until it has joined. Without an effect if it does so already.
  void need(unsigned number, const std::string& address);
  void usable(unsigned number);                        // what has joined
  void lost(unsigned number, const std::string& why);  // it is called again
  void done(unsigned number);
  // Of a connection of call(): it has ended before it joined the link.
  void on_closed(const Connection& connection, const std::string& why);
  bool owns(const Connection& connection) const;
  // The connection that has joined. It stays in memory for its caller. The path is usable() or lost() then.
  std::shared_ptr<Connection> take(const Connection& connection);
  // Why the path is not there: of the last call. Empty: it has not failed.
  std::string trouble(unsigned number) const;

 private:
  struct Call {
    std::string address;
    std::shared_ptr<Connection> connection = {};
    ports::Loop::TimerId timer = 0;
    bool joined = false;
    std::optional<Instant> usable_since = {};
    unsigned attempts = 0, failed = 0, flapped = 0;  // one after the other; flapped: after it had joined
    std::string trouble = {};
  };
  void dial(unsigned number);
  void connect(unsigned number, const Result<std::vector<Address>>& found);
  void again(unsigned number, const std::string& why, Duration pause);
  void failed(unsigned number, const std::string& why);

  Around around_;
  std::map<unsigned, Call> calls_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace twinloft::repl::net
