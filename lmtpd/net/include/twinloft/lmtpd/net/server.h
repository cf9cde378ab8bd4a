// The LMTP server: connections, threads and limits around the state machine of session/.
//
// `io_threads` event loops transfer the bytes. Deliveries run on `deliveries_max` worker threads. Look-ups
// run on other worker threads, so that slow agents do not delay RCPT, or on the event loop if the user
// database does not block. User database and delivery are the interfaces of model.h. Their exceptions become
// 451 4.3.0.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/fd.h"
#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/net/listener.h"
#include "twinloft/lmtpd/policy/mailbox.h"
#include "twinloft/lmtpd/session/filtering.h"
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/session/session.h"
#include "twinloft/lmtpd/tls/tls.h"

namespace twinloft::lmtpd {

struct ServerConfig {
  SessionConfig session;
  std::uint32_t io_threads = 1;
  std::uint32_t deliveries_max = 64;  // worker threads
  std::uint32_t deliveries_per_transaction_max = 16;
  std::uint32_t lookups_max = 8;                    // worker threads
  std::uint32_t rooms_max = 8;                      // worker threads that look at mailboxes
  std::uint32_t connections_max = 1000;             // more get 421 4.3.2
  std::uint32_t connections_per_address_max = 500;  // more get 421 4.7.0; Unix sockets have no address
  std::chrono::milliseconds idle_timeout{300'000};
  std::chrono::milliseconds transaction_timeout{1'800'000};  // from MAIL to the end of the message: 421 4.4.2
  std::chrono::milliseconds queue_time{60'000};              // until a delivery begins; then 451 4.3.2
  std::chrono::milliseconds stop_timeout{60'000};            // after stop(), for deliveries in flight
  std::uint64_t body_memory = 1u << 20;
  std::uint64_t body_memory_total = 256u << 20;
  std::shared_ptr<MemoryBudget> memory;  // of this size, shared with the deliverer; null: the server's own
  std::uint64_t body_disk_total = 4ull << 30;
  std::shared_ptr<MemoryBudget> disk;  // the same for messages in files
  std::string body_directory = "/var/tmp";
  std::function<Result<Fd>(const std::string& directory)> make_body_file;  // null: unlinked files; may block
  std::shared_ptr<const TlsContext> tls;                                   // required if a listener has TLS
  std::chrono::milliseconds abort_grace{2'000};  // after abort(), for the end of deliveries; then 451 4.3.2
  Mailboxes* mailboxes = nullptr;                // with limits; outlives the server. null: no limits
  Filters* filters = nullptr;                    // outlives the server. null: none
  std::uint32_t filter_threads = 32;             // worker threads, for one message each
  std::function<void()> on_abort;                // ends running agents, on the I/O thread; null: none
  std::chrono::milliseconds drain_time{60'000};  // after drain(), for busy connections
  std::chrono::milliseconds drain_idle{1'000};   // after drain(): an idle connection ends after this time
};

struct RunEnd {
  bool aborted = false;              // by abort(), or after stop_timeout
  std::size_t deliveries_left = 0;   // begun, not ended; their clients got 451, their outcome is unknown
  std::size_t connections_left = 0;  // closed without their replies
  bool in_order() const { return !aborted && deliveries_left == 0; }
};

class Server {
 public:
  // The references must outlive the server. Errors: the event loop refuses a listener, or a listener with TLS
  // has no certificate.
  static Result<std::unique_ptr<Server>> create(ServerConfig config, std::vector<Listener> listeners,
                                                UserDb& users, Deliverer& deliverer, const Clock& clock,
                                                Random& random);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop() or drain(). Returns after the last connection. If deliveries are left, the
  // destructors of the server and the deliverer wait for them; a program that cannot wait ends by _exit().
  RunEnd run();
  // The next functions are thread-safe, and return at once.
  // Accepts no further connections. Idle connections get 421 4.3.2, waiting deliveries 451 4.3.2. Deliveries
  // in flight are completed and answered; after stop_timeout, abort().
  void stop();
  // As stop(), without waiting for deliveries in flight: calls on_abort. Deliveries that have not ended after
  // abort_grace get 451 4.3.2.
  void abort();
  // Another server process has taken over. Accepts no further connections. A connection gets 421 4.3.2 once
  // it is idle for drain_idle, or after drain_time once it has no open transaction.
  void drain();
  // A helper of this server process has failed. While the server drains, a client is served only until the
  // end of its transaction.
  void hurry();

  std::size_t connections() const;  // open connections
  // False: an event loop has made no turn since the last call. Call it about once a second, in one thread.
  bool takes_turns();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  void post(void (Impl::*what)());
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
