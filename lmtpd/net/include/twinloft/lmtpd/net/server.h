// The LMTP server: connections, threads and limits around session/'s state machine.
//
// `io_threads` event loops carry the bytes. Deliveries run on `deliveries_max` worker threads, look-ups on others, so
// that slow agents hold up no RCPT; unless the user database never blocks: then on the event loop. Databases and delivery come in as the interfaces of model.h; what they throw
// becomes 451 4.3.0.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "twinloft/base/clock.h"
#include "twinloft/base/random.h"
#include "twinloft/base/result.h"
#include "twinloft/lmtpd/net/listener.h"
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
  std::chrono::milliseconds idle_timeout{300'000};
  std::uint64_t body_memory = 1u << 20;
  std::uint64_t body_memory_total = 256u << 20;
  std::string body_directory = "/var/tmp";
  bool lookup_blocks = true;     // false: look-ups are done on the io thread
  bool stop_on_signals = false;  // SIGTERM and SIGINT call stop()
};

class Server {
 public:
  // The references outlive the server. Errors: listeners that the event loop refuses.
  static Result<std::unique_ptr<Server>> create(ServerConfig config, std::vector<Listener> listeners,
                                                UserDb& users, Deliverer& deliverer, const Clock& clock,
                                                Random& random);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves until stop(); then no connection is accepted any more, idle ones get 421 4.3.2, deliveries under way
  // are finished and answered. Returns when all of that is done.
  void run();
  void stop();  // thread-safe, returns at once

  std::size_t connections() const;  // open now

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace twinloft::lmtpd
