// The state that all connections of a server share, and the event loop of a connection.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "body_store.h"
#include "deliveries.h"
#include "twinloft/base/log_gate.h"
#include "twinloft/lmtpd/net/server.h"
#include "twinloft/lmtpd/session/actions.h"
#include "worker_pool.h"

namespace twinloft::lmtpd {

class Connection;

struct NewConnection {
  Fd socket;
  sockaddr_storage peer{};
  std::shared_ptr<const ListenRules> rules;
};

struct Hub {
  static constexpr std::size_t body_threads = 4;

  Hub(ServerConfig c, UserDb& u, Deliverer& d, const Clock& k)
      : config(with_budget(std::move(c))),
        users(u),
        deliverer(d),
        clock(k),
        budget(*config.memory),
        body_limits{config.body_memory, config.body_directory,
                    config.make_body_file ? config.make_body_file : make_unlinked_file, config.disk.get()},
        rooms(config.rooms_max),
        lookups(config.lookups_max),
        deliveries(config.deliveries_max, config.deliveries_per_transaction_max),
        filters(config.filters ? config.filter_threads : 1),
        bodies(body_threads) {}

  static ServerConfig with_budget(ServerConfig c) {
    if (!c.memory) c.memory = std::make_shared<MemoryBudget>(c.body_memory_total);
    if (!c.disk) c.disk = std::make_shared<MemoryBudget>(c.body_disk_total);
    c.session.memory = c.memory.get();
    c.session.has_filters = c.filters != nullptr;
    if (Mailboxes* m = c.mailboxes)
      c.session.recipients.has_limits = [m](const User& user) { return m->has_limits(user); };
    return c;
  }

  const ServerConfig config;
  UserDb& users;
  Deliverer& deliverer;
  const Clock& clock;
  MemoryBudget& budget;
  const BodyLimits body_limits;
  // Whether one more connection from this address is allowed. If so, the caller calls give_back_address() at
  // its end.
  bool take_address(const std::string& address) {
    std::lock_guard lock(addresses_mutex);
    std::uint32_t& count = addresses[address];
    if (count >= config.connections_per_address_max) return false;
    ++count;
    return true;
  }
  void give_back_address(const std::string& address) {
    std::lock_guard lock(addresses_mutex);
    auto found = addresses.find(address);
    if (--found->second == 0) addresses.erase(found);
  }
  std::mutex addresses_mutex;
  std::unordered_map<std::string, std::uint32_t> addresses;  // number of connections, by address
  LogGate failures, refusals, handshakes, lookups_failed, messages_put_off;
  LogRate refused{100};  // lines about senders and recipients: one message may cause many
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> deliveries_begun{0};  // and not ended
  WorkerPool rooms;  // looks at mailboxes. The pools are last: their threads use the other members
  WorkerPool lookups;
  Deliveries deliveries;
  WorkerPool filters;
  WorkerPool bodies;  // writes large messages to files; separate, so that a suspended spool does not block it
};

// The event loop of one thread. Only takes_turns() may be called on other threads.
class Loop {
 public:
  // `ended` is called once, when the last connection is gone after stop().
  Loop(Hub& hub, std::function<void()> ended)
      : hub_(hub), ended_(std::move(ended)), io_(1), guard_(io_.get_executor()), buffer_(read_bytes_max) {}

  boost::asio::io_context& io() { return io_; }
  Hub& hub() { return hub_; }
  std::vector<char>& buffer() { return buffer_; }  // for one read at a time
  Actions& actions() { return actions_; }          // for one session at a time

  void add(std::shared_ptr<Connection> connection);
  void remove(const std::shared_ptr<Connection>& connection);
  // Stops every connection. The loop ends when the last connection is gone.
  void stop();
  // Calls Connection::drain() repeatedly until the last connection is gone.
  void drain();
  // From now on a drain, begun or still to come, also closes between two transactions of a client.
  void hurry();
  // Ends deliveries in flight with 451, and other sessions with 421. Connections then only send their
  // replies.
  void abort();
  // Closes every connection at once, and ends the loop.
  void abandon();
  // False: the loop has made no turn since the last call.
  bool takes_turns();

 private:
  static constexpr std::size_t read_bytes_max = 128 * 1024;
  std::vector<std::shared_ptr<Connection>> all() const { return {connections_.begin(), connections_.end()}; }
  void drain_some();
  void end_if_empty();

  Hub& hub_;
  std::function<void()> ended_;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::vector<char> buffer_;
  Actions actions_;
  std::unordered_set<std::shared_ptr<Connection>> connections_;
  boost::asio::steady_timer drain_timer_{io_};
  Instant drain_until_;
  bool stopping_ = false;
  bool draining_ = false;
  bool hurried_ = false;
  std::atomic<bool> asked_{false};  // by takes_turns(); the loop has made no turn since
};

}  // namespace twinloft::lmtpd
