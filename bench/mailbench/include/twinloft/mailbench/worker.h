// A thread of a load run, with some of the clients on one epoll set.
//
// A client is a closed loop: it connects, sends a message, waits for the replies, repeats the message if
// necessary, and takes the next message. After the loss of its connection, the client waits, and connects
// again.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/mailbench/account.h"
#include "twinloft/mailbench/endpoint.h"
#include "twinloft/mailbench/load.h"
#include "twinloft/mailbench/message.h"
#include "twinloft/mailbench/series.h"
#include "twinloft/mailbench/session.h"
#include "twinloft/mailbench/tls_client.h"

namespace twinloft::mailbench {

// What all workers of a run know of each other.
struct RunState {
  std::atomic<bool> connected{false};        // one client has had a connection
  std::atomic<std::int64_t> idle{0};         // clients that wait for a message (open loop)
  std::atomic<bool> drained{false};          // waiting is set
  std::atomic<std::uint64_t> waiting{0};     // messages that were due at the window's end, and not sent yet
  std::atomic<std::int64_t> unconnected{0};  // clients that have not had a connection yet
};

class Worker {
 public:
  // All references outlive the worker. account: may be null.
  struct Context {
    const LoadOptions& options;
    const Endpoint& endpoint;
    const TlsContext* tls;  // for STARTTLS
    const Clock& clock;
    Schedule& schedule;
    AccountWriter* account;
    MessageFactory::Settings message_settings;
    const Users& users;
    const TextBlock& block;
    Series& series;
    RunState& run;
  };
  // The clients first_client, first_client + 1 ... of the run.
  Worker(Context context, std::size_t first_client, std::size_t clients);
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
  int wait();  // the number of events, or a negative errno
  void begin_drain();
  void fire_timers();
  void wake_idle();
  void set_idle(Client& client, bool idle);
  void on_timer(std::size_t index);
  void arm(std::size_t index, Instant at);
  void on_event(std::size_t index, std::uint32_t events);
  void end_idle_clients();
  void abandon_all();

  void connect(std::size_t index);
  void on_connected(std::size_t index);
  bool receive(std::size_t index);  // false: the connection is gone
  Status feed(Client& client, std::string_view bytes);
  bool transmit(std::size_t index);
  void encrypt_more(Client& client);
  void advance(std::size_t index);  // does the next steps that do not block
  bool take_message(std::size_t index);
  void begin_attempt(std::size_t index);
  void lay_out_content(Client& client);
  void sent_content(Client& client, std::size_t bytes);
  void settle(std::size_t index, std::span<const RecipientResult> results, bool lost);
  void end_message(Client& client);
  void connection_lost(std::size_t index, const std::string& why);
  void end_client(std::size_t index);
  void close(Client& client);
  void wait_for_output(Client& client, bool wanted);
  Status flush_account();
  void sample_generator();
  void take_times(Client& client);
  void take_intended(Client& client, Instant due);
  void count_outcome(Outcome outcome, int code);
  void count_acknowledged(Client& client, std::uint64_t recipients);

  Context context_;
  const std::size_t first_client_;
  MessageFactory factory_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::size_t live_ = 0;
  Fd epoll_;
  std::vector<epoll_event> events_;    // room for all clients: no event waits for the next call
  Instant batch_began_, waited_from_;  // since waited_from_, events of this batch may have waited
  std::priority_queue<Timer> timers_;
  Instant now_;
  // Open loop: clients without a message, and when one of them is needed. An entry is valid if the client's
  // connection has this generation.
  std::deque<std::pair<std::size_t, std::uint32_t>> idle_;
  std::optional<Instant> next_due_;
  bool woken_ = false;  // take_message() works for an idle client
  SeriesFeed seconds_;
  std::string account_lines_;
  std::string receive_buffer_;
  LoadStats stats_;
  struct Sample {
    Instant at;
    std::uint64_t cpu_ns = 0, waited_ns = 0;
  };
  static Sample sample_thread(Instant now);
  std::optional<Sample> window_start_;
  bool window_done_ = false, draining_ = false, stopping_ = false;
  Instant drain_end_;
  std::optional<Error> failure_;
};

}  // namespace twinloft::mailbench
