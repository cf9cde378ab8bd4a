// The LMTP server: connections, threads and limits around session/'s state machine.
//
// `io_threads` event loops carry the bytes. Deliveries run on `deliveries_max` worker threads, look-ups on others, so
// that slow agents hold up no RCPT; unless the user database never blocks: then on the event loop. Databases and
// delivery come in as the interfaces of model.h; what they throw becomes 451 4.3.0.
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
#include "twinloft/lmtpd/net/tls.h"
#include "twinloft/lmtpd/session/memory_budget.h"
#include "twinloft/lmtpd/session/model.h"
#include "twinloft/lmtpd/session/session.h"

namespace twinloft::lmtpd {

struct ServerConfig {
  SessionConfig session;
  std::uint32_t io_threads = 1;
  std::uint32_t deliveries_max = 64;  // worker threads
  std::uint32_t deliveries_per_transaction_max = 16;
  std::uint32_t lookups_max = 8;      // worker threads
  std::uint32_t connections_max = 1000;  // beyond: 421 4.3.2
  std::uint32_t connections_per_address_max = 500;  // beyond: 421 4.7.0; Unix sockets have no address
  std::chrono::milliseconds idle_timeout{300'000};
  std::chrono::milliseconds transaction_timeout{1'800'000};  // from MAIL to the end of the message: 421 4.4.2
  std::chrono::milliseconds queue_time{60'000};    // a delivery that has not begun by then: 451 4.3.2
  std::chrono::milliseconds stop_timeout{60'000};  // after stop(), for deliveries that have begun
  std::uint64_t body_memory = 1u << 20;
  std::uint64_t body_memory_total = 256u << 20;
  std::shared_ptr<MemoryBudget> memory;  // shared with the deliverer, and of that size; null: the server's own
  std::string body_directory = "/var/tmp";
  std::function<Result<Fd>(const std::string& directory)> make_body_file;  // null: unlinked files; may block
  std::shared_ptr<const TlsContext> tls;  // needed where a listener offers it
  bool lookup_blocks = true;     // false: look-ups are done on the io thread
  bool stop_on_signals = false;  // SIGTERM and SIGINT call stop(); SIGHUP is logged, and changes nothing
};

struct RunEnd {
  bool in_order = true;
  std::size_t deliveries_left = 0;   // begun and not ended: what becomes of them their clients do not learn
  std::size_t connections_left = 0;  // closed without the replies that they waited for
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

  // Serves until stop(); then no connection is accepted any more, idle ones get 421 4.3.2, deliveries that have not
  // begun get 451 4.3.2, those that have are finished and answered. Returns when all of that is done, or, not in
  // order, when stop_timeout is over: then every connection is closed, and destroying the server (or the deliverer)
  // waits for the deliveries that were left. A program that cannot wait ends by _exit().
  RunEnd run();
  void stop();  // thread-safe, returns at once

  std::size_t connections() const;  // open now

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
