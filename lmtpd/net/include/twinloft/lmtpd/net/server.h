// The LMTP server: connections, threads and limits around session/'s state machine.
//
// `io_threads` event loops carry the bytes. Deliveries run on `deliveries_max` worker threads, look-ups on
// others, so that slow agents hold up no RCPT; unless the user database never blocks: then on the event loop.
// Databases and delivery come in as the interfaces of model.h; what they throw becomes 451 4.3.0.
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
  std::uint32_t rooms_max = 8;                      // worker threads, that ask whether a mailbox has room
  std::uint32_t connections_max = 1000;             // beyond: 421 4.3.2
  std::uint32_t connections_per_address_max = 500;  // beyond: 421 4.7.0; Unix sockets have no address
  std::chrono::milliseconds idle_timeout{300'000};
  std::chrono::milliseconds transaction_timeout{1'800'000};  // from MAIL to the end of the message: 421 4.4.2
  std::chrono::milliseconds queue_time{60'000};    // a delivery that has not begun by then: 451 4.3.2
  std::chrono::milliseconds stop_timeout{60'000};  // after stop(), for deliveries that have begun
  std::uint64_t body_memory = 1u << 20;
  std::uint64_t body_memory_total = 256u << 20;
  std::shared_ptr<MemoryBudget> memory;  // shared with the deliverer, and of that size; null: the server's
                                         // own
  std::uint64_t body_disk_total = 4ull << 30;
  std::shared_ptr<MemoryBudget> disk;  // of messages in files: likewise
  std::string body_directory = "/var/tmp";
  std::function<Result<Fd>(const std::string& directory)> make_body_file;  // null: unlinked files; may block
  std::shared_ptr<const TlsContext> tls;         // needed where a listener offers it
  std::chrono::milliseconds abort_grace{2'000};  // after abort(), for what its end takes: then 451 4.3.2
  std::function<void()> on_abort;  // ends agents that run, on the io thread; null: there are none
  std::chrono::milliseconds drain_time{60'000};  // after drain(), for connections that are busy
  std::chrono::milliseconds drain_idle{1'000};   // for so long a client has said nothing
};

struct RunEnd {
  bool aborted = false;              // by abort(), or since stop_timeout was over
  std::size_t deliveries_left = 0;   // begun and not ended: their clients got 451, and what becomes of them
                                     // nobody learns
  std::size_t connections_left = 0;  // closed without the replies that they waited for
  bool in_order() const { return !aborted && deliveries_left == 0; }
};

class Server {
 public:
  // The references outlive the server. Errors: listeners that the event loop refuses; one with TLS
  // where there is no certificate.
  static Result<std::unique_ptr<Server>> create(ServerConfig config, std::vector<Listener> listeners,
                                                UserDb& users, Deliverer& deliverer, const Clock& clock,
                                                Random& random);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop() or drain(). Returns when the last connection is gone; where deliveries were left,
  // destroying the server (or the deliverer) waits for them: a program that cannot wait ends by _exit().
  RunEnd run();
  // All of these are thread-safe, and return at once.
  // No connection is accepted any more, idle ones get 421 4.3.2, deliveries that have not begun get
  // 451 4.3.2, those that have are finished and answered; after stop_timeout, abort().
  void stop();
  // stop(), and deliveries that have begun are not waited for: on_abort is called, and what has not ended
  // abort_grace later gets 451 4.3.2.
  void abort();
  // For another server that has taken over: no connection is accepted any more, those there are are served
  // until their clients say nothing for drain_idle, and after drain_time until no transaction is open; then
  // 421 4.3.2.
  void drain();
  // This server cannot do all that it should: once it drains, now or later, a client that has begun a
  // transaction is served only until that is over.
  void hurry();

  std::size_t connections() const;  // open now
  // False where an event loop has not had its turn since the last call. For one thread that calls it about
  // once a second.
  bool takes_turns();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  void post(void (Impl::*what)());
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
