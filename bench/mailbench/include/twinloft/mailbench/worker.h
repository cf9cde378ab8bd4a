// A thread of a load run, with some of the clients on one epoll set.
//
// A client is a closed loop: it connects, sends a message, waits for the replies, repeats the message if
// necessary, and takes the next message. After the loss of its connection, the client waits, and connects
// again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/endpoint.h"
#include "twinloft/mailbench/load.h"
#include "twinloft/mailbench/message.h"
#include "twinloft/mailbench/session.h"

namespace twinloft::mailbench {

class Worker {
 public:
  // All references outlive the worker. account: may be null.
  struct Context {
    const LoadOptions& options;
    const Endpoint& endpoint;
    const Clock& clock;
    Schedule& schedule;
    AccountWriter* account;
    MessageFactory::Settings message_settings;
    const Users& users;
    const TextBlock& block;
  };
  Worker(Context context, std::size_t clients);
  ~Worker();

  // Returns when every client has ended. `on_tick` is called about ten times a second.
  Status run(const std::function<void(const LoadStats&)>& on_tick);
  const LoadStats& stats() const { return stats_; }

 private:
  struct Client;
  struct Timer {
    Instant at;
    std::size_t client;
    bool operator<(const Timer& other) const { return at > other.at; }  // the queue's top is the earliest
  };

  Status loop(const std::function<void(const LoadStats&)>& on_tick);
  void fire_timers();
  void on_timer(std::size_t index);
  void arm(std::size_t index, Instant at);
  void on_event(std::size_t index, std::uint32_t events);
  void stop_idle_clients();
  void abandon_all();

  void connect(std::size_t index);
  void on_connected(std::size_t index);
  bool receive(std::size_t index);  // false: the connection is gone
  bool transmit(std::size_t index);
  void advance(std::size_t index);  // does the next steps that do not block
  bool take_message(std::size_t index);
  void begin_attempt(std::size_t index);
  void settle(std::size_t index, std::span<const RecipientResult> results, bool lost);
  void end_message(Client& client);
  void connection_lost(std::size_t index, const std::string& why);
  void end_client(std::size_t index);
  void close(Client& client);
  void wait_for_output(Client& client, bool wanted);
  Status flush_account();
  void sample_cpu();
  void count_acknowledged(Client& client, std::uint64_t recipients);

  Context context_;
  MessageFactory factory_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::size_t live_ = 0;
  Fd epoll_;
  std::priority_queue<Timer> timers_;
  Instant now_;
  std::string account_lines_;
  std::string receive_buffer_;
  LoadStats stats_;
  std::optional<std::uint64_t> cpu_at_start_;
  bool cpu_done_ = false, stopping_ = false, ever_connected_ = false;
  Instant drain_end_;
  std::optional<Error> failure_;
};

}  // namespace twinloft::mailbench
